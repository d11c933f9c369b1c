package attack

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestManyLimitsDoNotOpenTheCircuit requests more limits at once than one call to Redis may carry. However many there are, Redis has
// not failed: the circuit stays closed, and Redis decides for other tenants.
func TestManyLimitsDoNotOpenTheCircuit(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	store := longDeadlineStore(t, redis)
	limits := map[string]headgate.Limit{}
	for i := range 60 {
		limits[fmt.Sprint("l", i)] = headgate.PerMinute(int64(1_000_000 + i))
	}
	few := map[string]headgate.Limit{
		"second": headgate.PerSecond(1_000), "minute": headgate.PerMinute(10_000), "hour": headgate.PerHour(90_000), "day": headgate.PerDay(500_000),
	}
	logs := map[string]headgate.Limit{}
	for i, algorithm := range []headgate.Algorithm{headgate.SlidingLog, headgate.SlidingWindow, headgate.FixedWindow} {
		logs[algorithm.String()] = headgate.Limit{Algorithm: algorithm, Count: int64(1_000 + i), Window: time.Minute}
	}
	at := func(route string) headgate.Match {
		return headgate.Match{Attributes: map[string]headgate.Pattern{"descriptor.route": headgate.OneOf(route)}}
	}
	limiter := newLimiter(t, store,
		headgate.Rule{ID: "ours", Match: at("ours"), By: []string{"tenant"}, Limit: headgate.PerMinute(1_000), Strict: true},
		headgate.Rule{ID: "few", Match: at("few"), By: []string{"tenant"}, Limits: few},
		headgate.Rule{ID: "many", Match: at("many"), By: []string{"tenant"}, Limits: limits},
		headgate.Rule{ID: "logs", Match: at("logs"), By: []string{"tenant"}, Limits: logs},
	)
	random := rand.New(rand.NewPCG(1, uint64(time.Now().Unix())))
	decided, rejected, maxLimits := 0, 0, 0
	for i := range size(60, 600) {
		requests := make([]headgate.BatchRequest, 1+random.IntN(64))
		route := []string{"few", "many", "logs"}[random.IntN(3)]
		if i < 2 { // always include these
			requests, route = make([]headgate.BatchRequest, 64), []string{"few", "many"}[i]
		}
		for j := range requests {
			requests[j].Attributes = headgate.Attributes{"tenant": fmt.Sprint("t", random.IntN(100)), "descriptor.route": route}
			requests[j].Cost = int64(random.IntN(3))
		}
		decisions, err := limiter.CheckAll(t.Context(), requests)
		if err != nil {
			rejected++
			if !strings.Contains(err.Error(), "limits") {
				t.Fatal(err)
			}
		}
		charges := 0
		for _, d := range decisions {
			charges += len(d.Limits)
			if d.Path == headgate.PathFailed || d.Path == headgate.PathLocal {
				t.Fatalf("%d requests on %s: decided by %s", len(requests), route, d.Path)
			}
		}
		if err == nil {
			decided++
			maxLimits = max(maxLimits, charges)
		}
		other, err := limiter.Check(t.Context(), headgate.Request{
			Attributes: headgate.Attributes{"tenant": fmt.Sprint("other", i), "descriptor.route": "ours"},
		})
		if err != nil || other.Path != headgate.PathStore {
			t.Fatalf("request of another tenant: decided by %s: %v", other.Path, err)
		}
	}
	stats := store.Stats()
	t.Logf("%d calls decided, of up to %d limits each; %d rejected as too many; circuit opened %d times", decided, maxLimits, rejected, stats.CircuitOpened)
	if stats.CircuitOpened != 0 || decided == 0 || rejected == 0 || maxLimits < 256 {
		t.Errorf("%d decided, up to %d limits, %d rejected; circuit opened %d times", decided, maxLimits, rejected, stats.CircuitOpened)
	}
}

// TestRuleOfManyLimits compiles a rule with 256 limits, as a tenant's editor might write. It is rejected.
func TestRuleOfManyLimits(t *testing.T) {
	t.Parallel()
	limits := map[string]headgate.Limit{}
	for i := range 256 {
		limits[fmt.Sprint("l", i)] = headgate.PerMinute(1_000)
	}
	_, err := headgate.Compile(headgate.Rule{ID: "evil", By: []string{"tenant"}, Limits: limits})
	if err == nil || !strings.Contains(err.Error(), "evil") || !strings.Contains(err.Error(), "at most 64") {
		t.Errorf("%v", err)
	}
}
