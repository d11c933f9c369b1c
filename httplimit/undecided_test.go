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

// TestUndecidedLog shows that a store that is away is named at once, then every 10 seconds, and that requests pass.
func TestUndecidedLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter, err := headgate.New(away{}, headgate.Rule{ID: "a", By: []string{"ip"}, Limit: headgate.PerMinute(1)})
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

// TestCheckError shows that the decision is acted on, whatever the error.
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

// TestGone shows that a client that has hung up is charged, and that no handler runs for it. A handler in front that set a deadline
// is answered 503.
func TestGone(t *testing.T) {
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
