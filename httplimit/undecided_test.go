package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
)

func textLog(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.MessageKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// TestUndecidedLog tests that an unavailable store is logged at once and then every 10 seconds, and that requests are allowed.
func TestUndecidedLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter, err := headgate.New(unavailable{}, headgate.Rule{ID: "a", By: []string{"ip"}, Limit: headgate.PerMinute(1)})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		h := httplimit.New(limiter, httplimit.Options{Log: textLog(&log)})(hello)
		for range 21 {
			if w := serve(h, get("/")); w.Code != http.StatusOK {
				t.Fatalf("status %d", w.Code)
			}
			time.Sleep(time.Second)
		}
		want := `error="store unavailable: connection refused" allowed=true path=failed others_since_last=0
error="store unavailable: connection refused" allowed=true path=failed others_since_last=9
error="store unavailable: connection refused" allowed=true path=failed others_since_last=9
`
		if log.String() != want {
			t.Errorf("log\n%swant\n%s", log.String(), want)
		}
	})
}

// TestCheckError tests that the decision is applied despite an error.
func TestCheckError(t *testing.T) {
	t.Parallel()
	for allowed, status := range map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests} {
		var log bytes.Buffer
		checker := static{headgate.Decision{Allowed: allowed}, errors.New("no route to host")}
		w := serve(httplimit.New(checker, httplimit.Options{Log: textLog(&log)})(hello), get("/"))
		if w.Code != status || !strings.Contains(log.String(), `error="no route to host"`) {
			t.Errorf("status %d, log %q", w.Code, log.String())
		}
	}
}

// TestContextDone tests that a request whose context is done is charged but does not reach the handler. An outer handler that set
// the deadline sees a 503.
func TestContextDone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{ID: "all", By: []string{"ip"}, Limit: headgate.PerHour(2)})
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	h := httplimit.New(limiter, httplimit.Options{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ }))
	for i, want := range []int{http.StatusServiceUnavailable, http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		if w := serve(h, get("/").WithContext(ctx)); w.Code != want || ran > 0 {
			t.Errorf("request %d: status %d, want %d; the handler ran %d times", i+1, w.Code, want, ran)
		}
	}
}
