package checkhttp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
)

// endsEngine begins all requests and keeps how they ended.
type endsEngine struct {
	check.Engine
	ends []headgate.Outcome
}

func (e *endsEngine) Begin(context.Context, headgate.Request) (headgate.Decision, error) {
	lease := headgate.Limit{Algorithm: headgate.Concurrency, Count: 1, Window: time.Hour}
	d := headgate.Decision{Allowed: true, Limits: []headgate.LimitDecision{{Limit: lease}}}
	d.OnDone(func(o headgate.Outcome) { e.ends = append(e.ends, o) })
	return d, nil
}

// TestReleaseOutcome checks that the engine gets the outcome of a request.
func TestReleaseOutcome(t *testing.T) {
	t.Parallel()
	engine := &endsEngine{Engine: limiter(t)}
	h := newTest(t, engine, Options{})
	post := func(path, body string) []byte {
		return serve(h, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))).Body.Bytes()
	}
	for body, want := range map[string]headgate.Outcome{
		``: {},
		`, "duration": 1.25, "status": 404, "cancelled": true`: {Duration: 1250 * time.Millisecond, Status: 404, Cancelled: true},
	} {
		var begun struct{ Slots string }
		if err := json.Unmarshal(post("/v1/check", `{"begin": true}`), &begun); err != nil || begun.Slots == "" {
			t.Fatalf("%+v: %v", begun, err)
		}
		response := post("/v1/release", `{"slots": "`+begun.Slots+`"`+body+`}`)
		if string(response) != "{\"found\":true}\n" || engine.ends[len(engine.ends)-1] != want {
			t.Errorf("%s: %s, %+v", body, response, engine.ends)
		}
	}
}
