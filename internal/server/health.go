package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/server/callers"
	"github.com/headgate/headgate/ruledoc"
	"github.com/headgate/headgate/storewrap"
)

// rejectedRecently is how long a server is degraded after it has rejected a caller.
const rejectedRecently = time.Minute

// health is what the server knows of itself. It is told of changes, so that whoever asks never waits.
type health struct {
	log      *slog.Logger
	draining atomic.Bool
	store    func() storewrap.Stats // nil without Redis
	rejected func() callers.Rejection
	// countRules returns how many rules are in use; nil if it does not matter that there are none.
	countRules func() int
	// remedy is what to do about it that there are none.
	remedy string

	mu       sync.Mutex
	state    healthReport // but for its status
	noRules  bool
	hadRules bool          // since the start
	serving  func(ok bool) // is called when that changes
}

// healthReport is the body of /readyz.
type healthReport struct {
	// Status is ok, degraded (it decides, but not with the rules of the files, not with Redis or not for all who ask), not_ready (it
	// never had a rule, and allows everything) or draining.
	Status string      `json:"status"`
	Rules  rulesHealth `json:"rules"`
	// Redis is left out where counters are in memory.
	Redis *redisHealth `json:"redis,omitempty"`
	// Callers is left out until one was rejected.
	Callers *callers.Rejection `json:"callers,omitempty"`
}

type rulesHealth struct {
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	// Problem is why the rules are not those of the files.
	Problem string `json:"problem,omitempty"`
}

type redisHealth struct {
	// Status is connecting, ok or unavailable.
	Status  string    `json:"status"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Problem string    `json:"problem,omitempty"`
	// ShardsUnavailable is how many shards are left alone, because they do not answer in time.
	ShardsUnavailable int `json:"shards_unavailable,omitempty"`
	// CountersPending is how many counters have local admissions that Redis is yet to be charged.
	CountersPending int `json:"counters_pending,omitempty"`
}

// rules notes what became of the rules.
func (h *health) rules(ctx context.Context, e ruledoc.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	level, r := slog.LevelInfo, &h.state.Rules
	switch e.Kind {
	case ruledoc.Applied:
		*r = rulesHealth{Version: e.Version, Since: now()}
	case ruledoc.Recovered:
		r.Problem = ""
	case ruledoc.StartedFromLastGood:
		*r = rulesHealth{Version: e.Version, Since: now(), Problem: e.Err.Error()}
		level = slog.LevelError
	case ruledoc.Rejected:
		r.Problem, level = e.Err.Error(), slog.LevelError
	default:
		level = slog.LevelWarn
	}
	h.log.Log(ctx, level, e.String(), "event", e.Kind.String(), "version", e.Version)
	h.noteRules(ctx)
}

// noteRules notes whether there are any rules, and logs when that has changed. A server that never had one is not ready: most likely
// they were forgotten, and the nodes before it in a rollout go on. One whose rules were all removed stays in service: that was done on
// purpose, or is a mistake that taking down all servers at once would only make worse.
func (h *health) noteRules(ctx context.Context) {
	if h.countRules == nil {
		return
	}
	none := h.countRules() == 0
	switch {
	case none && !h.noRules && h.hadRules:
		h.log.WarnContext(ctx, "all rules were removed: every request is allowed", "remedy", h.remedy)
	case none && !h.noRules:
		h.log.WarnContext(ctx, "there are no rules: every request is allowed, and the server is not ready", "remedy", h.remedy)
	case !none && h.noRules:
		h.log.InfoContext(ctx, "there are rules now: requests are limited")
	}
	was := h.hadRules
	h.noRules, h.hadRules = none, was || !none
	if h.hadRules != was && h.serving != nil {
		h.serving(true)
	}
}

// onServing has gRPC's health service say the same as /readyz: tell is called now and when it changes.
func (h *health) onServing(tell func(ok bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serving = tell
	tell(!h.noRules || h.hadRules)
}

// redis notes whether Redis answers, and says so when that has changed.
func (h *health) redis(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.state.Redis
	switch {
	case err == nil && r.Status != "ok":
		*r = redisHealth{Status: "ok", Address: r.Address, Since: now()}
		h.log.Info("Redis answers", "address", r.Address)
	case err != nil && r.Status != "unavailable":
		*r = redisHealth{Status: "unavailable", Address: r.Address, Since: now(), Problem: err.Error()}
		h.log.Error("Redis does not answer: each rule's on_store_failure decides", "address", r.Address, "error", err)
	}
}

// report is the state now.
func (h *health) report() healthReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.state
	if r.Redis != nil {
		redis := *r.Redis
		stats := h.store()
		redis.ShardsUnavailable, redis.CountersPending = stats.ShardsUnavailable, stats.PendingCounters
		r.Redis = &redis
	}
	last := h.rejected()
	if last.Count > 0 {
		shown := last
		shown.At = last.At.UTC().Truncate(time.Second)
		r.Callers = &shown
	}
	if h.noRules && r.Rules.Problem == "" {
		r.Rules.Problem = "there are no rules, and every request is allowed: " + h.remedy
	}
	switch {
	case h.draining.Load():
		r.Status = "draining"
	case h.noRules && !h.hadRules:
		r.Status = "not_ready"
	case time.Since(last.At) < rejectedRecently, r.Rules.Problem != "", r.Redis != nil && (r.Redis.Status != "ok" || r.Redis.ShardsUnavailable > 0):
		r.Status = "degraded"
	default:
		r.Status = "ok"
	}
	return r
}

// ops answers /healthz, while the process lives, and /readyz, also while Redis is unavailable: the server still decides.
func (h *health) ops(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeHealth(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r, status := h.report(), http.StatusOK
		if r.Status == "draining" || r.Status == "not_ready" {
			status = http.StatusServiceUnavailable
		}
		writeHealth(w, status, r)
	})
	mux.Handle("GET /metrics", metrics)
	return mux
}

func writeHealth(w http.ResponseWriter, status int, report any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(report) // who asked and is gone is not told
}

// now is for people, who need no fractions of a second.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
