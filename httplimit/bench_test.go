package httplimit_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
)

// discard is a ResponseWriter with minimal overhead.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkHandler measures the overhead of the middleware: subtract the line "bare" from the others. As in a server, each
// response has its own header map.
func BenchmarkHandler(b *testing.B) {
	byIP := []string{"ip"}
	rule := func(id string, limit headgate.Limit) headgate.Rule {
		return headgate.Rule{ID: id, By: byIP, Limit: limit}
	}
	plenty := headgate.Limit{Count: headgate.MaxCost, Window: time.Second}
	month := headgate.Quota(headgate.MaxCost, headgate.Month, nil)
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = contentType })

	for _, bench := range []struct {
		name  string
		rules []headgate.Rule
		o     httplimit.Options
	}{
		{name: "no rule"},
		{name: "one rule", rules: []headgate.Rule{rule("a", plenty)}},
		{name: "no headers", rules: []headgate.Rule{rule("a", plenty)}, o: httplimit.Options{Headers: httplimit.Off}},
		{name: "all headers", rules: []headgate.Rule{rule("a", plenty)}, o: httplimit.Options{OlderDraft: true}},
		{name: "a month", rules: []headgate.Rule{rule("a", month)}},
		{name: "three rules", rules: []headgate.Rule{rule("a", plenty), rule("b", plenty), rule("c", plenty)}},
		{name: "concurrency", rules: []headgate.Rule{rule("a", headgate.Concurrent(1000))}},
		{name: "concurrency, strict", rules: []headgate.Rule{{ID: "a", By: byIP, Limit: headgate.Concurrent(1000), Strict: true}}},
		{name: "denied", rules: []headgate.Rule{rule("a", headgate.Per(1, 24*time.Hour))}},
	} {
		limiter, err := headgate.New(memstore.New(memstore.Options{}), bench.rules...)
		if err != nil {
			b.Fatal(err)
		}
		measure(b, bench.name, httplimit.New(limiter, bench.o)(bare))
	}
	measure(b, "bare", bare)
}

var contentType = []string{"text/plain"}

func measure(b *testing.B, name string, h http.Handler) {
	r := get("/api/v1/users/"+strconv.Itoa(4711), "User-Agent", "example/1.0")
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.ServeHTTP(&discard{http.Header{}}, r)
		}
	})
}
