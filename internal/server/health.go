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

// rejectedRecently is how long the server reports degraded after it rejected a caller.
const rejectedRecently = time.Minute

// health is the state of the server. It is updated on changes, so that a health check never waits.
type health struct {
	log      *slog.Logger
	draining atomic.Bool
	store    func() storewrap.Stats // nil without Redis
	rejected func() callers.Rejection
	// countRules returns the number of rules in use. It is nil if the server may run without rules.
	countRules func() int
	// remedy is what the operator has to do if there are no rules.
	remedy string

	mu       sync.Mutex
	state    healthReport // without its status
	noRules  bool
	hadRules bool          // at any time since the start
	serving  func(ok bool) // called when the server becomes ready
}

// healthReport is the body of /readyz.
type healthReport struct {
	// Status is ok, degraded (the server decides, but without Redis, without the current rules, or it recently rejected a
	// caller), not_ready (it never had a rule, and allows everything) or draining.
	Status string      `json:"status"`
	Rules  rulesHealth `json:"rules"`
	// Redis is omitted if counters are in memory.
	Redis *redisHealth `json:"redis,omitempty"`
	// Callers is omitted until a caller was rejected.
	Callers *callers.Rejection `json:"callers,omitempty"`
}

type rulesHealth struct {
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	// Problem is why the rules in use are not the configured ones.
	Problem string `json:"problem,omitempty"`
}

type redisHealth struct {
	// Status is connecting, ok or unavailable.
	Status  string    `json:"status"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Problem string    `json:"problem,omitempty"`
	// ShardsUnavailable is the number of shards whose circuit is open because they do not respond in time.
	ShardsUnavailable int `json:"shards_unavailable,omitempty"`
	// CountersPending is the number of counters with local admissions that are not yet charged to Redis.
	CountersPending int `json:"counters_pending,omitempty"`
}

// rules records and logs an event of the rules.
func (h *health) rules(ctx context.Context, e ruledoc.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &h.state.Rules
	log := h.log.With("event", e.Kind.String(), "version", e.Version, "detail", e.String())
	switch e.Kind {
	case ruledoc.Applied:
		*r = rulesHealth{Version: e.Version, Since: now()}
		log.InfoContext(ctx, "rules applied")
	case ruledoc.Recovered:
		r.Problem = ""
		log.InfoContext(ctx, "rules recovered: the rules in use are current")
	case ruledoc.StartedFromLastGood:
		*r = rulesHealth{Version: e.Version, Since: now(), Problem: e.Err.Error()}
		log.ErrorContext(ctx, "rules rejected: started with the last valid rules")
	case ruledoc.Rejected:
		r.Problem = e.Err.Error()
		log.ErrorContext(ctx, "rules rejected: the previous version stays in use")
	default: // SaveFailed
		log.WarnContext(ctx, "cannot read or write last_good_file: the rules in use may not survive a restart")
	}
	h.updateReadiness(ctx)
}

// updateReadiness records whether there are any rules, and logs changes. A server that never had a rule is not ready: most
// likely its rules were forgotten, and the earlier nodes of a rollout continue to serve. A server whose rules were all
// removed stays ready: either that was intended, or it is a mistake that taking all servers out of service would make worse.
func (h *health) updateReadiness(ctx context.Context) {
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
		h.log.InfoContext(ctx, "rules available: requests are limited")
	}
	was := h.hadRules
	h.noRules, h.hadRules = none, was || !none
	if h.hadRules != was && h.serving != nil {
		h.serving(true)
	}
}

// onServing registers the callback that updates gRPC's health service, which reports the same as /readyz. The callback is
// called now and on every change.
func (h *health) onServing(serving func(ok bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serving = serving
	serving(!h.noRules || h.hadRules)
}

// redis records whether Redis responds, and logs changes.
func (h *health) redis(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.state.Redis
	switch {
	case err == nil && r.Status != "ok":
		*r = redisHealth{Status: "ok", Address: r.Address, Since: now()}
		h.log.Info("redis connected", "address", r.Address)
	case err != nil && r.Status != "unavailable":
		*r = redisHealth{Status: "unavailable", Address: r.Address, Since: now(), Problem: err.Error()}
		h.log.Error("redis unavailable: applying each rule's on_store_failure", "address", r.Address, "error", err)
	}
}

// report returns the current state.
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

// ops returns the handler of /healthz, /readyz and /metrics. /readyz succeeds while Redis is unavailable: the server still
// decides.
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
	_ = json.NewEncoder(w).Encode(report) // the client may have disconnected
}

// now returns the current time in whole seconds, for output.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
