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

// TestReadmeSurvivesRedis tests that the README's setup decides every request and enforces the limit while Redis is killed and restarted.
func TestReadmeSurvivesRedis(t *testing.T) {
	t.Parallel()
	const limit = 20
	server := testenv.Start(t, testenv.Redis, "--appendonly", "yes", "--appendfsync", "no") // written at once, independent of the disk
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
	check := func() (limited bool) {
		t.Helper()
		began := time.Now()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/login", http.NoBody))
		if elapsed := time.Since(began); elapsed > time.Second {
			t.Errorf("a response took %v", elapsed)
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
		check()
	}
	server.Kill()
	for range 4 * limit {
		check()
		time.Sleep(time.Millisecond)
	}
	stats := store.Stats()
	if off := int64(admitted - limit); !check() || off < 0 || off > stats.Unanswered { // one request may have failed on a busy machine, too
		t.Errorf("%d of %d allowed: %+v", admitted, limit, stats)
	}
	server.Restart(t)
	for end := time.Now().Add(10 * time.Second); stats.ShardsUnavailable > 0 || stats.PendingCounters > 0; time.Sleep(time.Millisecond) { // the machine may be busy
		if time.Now().After(end) {
			t.Fatalf("ten seconds after the restart of Redis: %+v", stats)
		}
		check()
		stats = store.Stats()
	}
	for range limit {
		check()
	}
	// Requests pending when Redis was killed may have been counted twice or not at all.
	if off := int64(admitted - limit); !check() || off < 0 || off > stats.Unanswered {
		t.Errorf("%d of %d allowed after the restart of Redis: %+v", admitted, limit, stats)
	}
}
