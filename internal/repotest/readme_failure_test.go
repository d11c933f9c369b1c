package repotest

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

// What the README puts together answers every request while Redis is killed and comes back, and is limited throughout.
func TestReadmeSurvivesRedis(t *testing.T) {
	t.Parallel()
	const limit = 20
	server := testenv.Start(t, testenv.Redis, "--appendonly", "yes", "--appendfsync", "no") // written at once, whatever the disk does
	redis, err := redisstore.Open("redis://" + server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	store := storewrap.New(redis, storewrap.Options{Log: slog.New(slog.DiscardHandler)})
	defer store.Close()
	limiter, err := headgate.New(store, headgate.Rule{
		ID: "login", Match: headgate.Match{Path: "/login"}, By: []string{"ip"},
		Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Window: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	handler := httplimit.New(limiter, httplimit.Options{})(hello)
	if err := redis.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	admitted := 0
	ask := func() (limited bool) {
		t.Helper()
		began := time.Now()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/login", http.NoBody))
		if took := time.Since(began); took > time.Second {
			t.Errorf("an answer took %v", took)
		}
		switch w.Code {
		case http.StatusOK:
			admitted++
		case http.StatusTooManyRequests:
			limited = true
		default:
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		return limited
	}
	for range limit / 2 {
		ask()
	}
	server.Kill()
	for range 4 * limit {
		ask()
		time.Sleep(time.Millisecond)
	}
	stats := store.Stats()
	if off := int64(admitted - limit); !ask() || off < 0 || off > stats.Unanswered { // it may have been too busy for one, too
		t.Errorf("%d were admitted of %d: %+v", admitted, limit, stats)
	}
	server.Restart(t)
	for end := time.Now().Add(10 * time.Second); stats.ShardsUnavailable > 0 || stats.PendingCounters > 0; time.Sleep(time.Millisecond) { // it may be a busy machine
		if time.Now().After(end) {
			t.Fatalf("ten seconds after Redis is back: %+v", stats)
		}
		ask()
		stats = store.Stats()
	}
	for range limit {
		ask()
	}
	// What was under way when it was killed may not have been counted, or twice.
	if off := int64(admitted - limit); !ask() || off < 0 || off > stats.Unanswered {
		t.Errorf("%d were admitted of %d, now that Redis is back: %+v", admitted, limit, stats)
	}
}
