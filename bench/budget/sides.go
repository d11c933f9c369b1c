package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/bench/internal/timeline"
	"github.com/headgate/headgate/internal/testenv"
)

// side is one way to keep the budget: gateways with a Redis and a model of their own.
type side struct {
	name string
	// ours is whether the side is Headgate's, which is judged.
	ours  bool
	redis *testenv.Server
	model *model
	load  load
	// gateways are the processes that may be killed.
	gateways []*testenv.Program
	// counted returns what the side itself has counted, in millionths of a dollar.
	counted func() int64
	// bill is what the model has billed, over time, in dollars.
	bill []timeline.Point
}

// sides are run at the same time.
type sides []*side

// names are those of the sides, in the order of the table and the drawing.
const (
	nameHeadgate = "Headgate"
	nameEnvoy    = "Envoy + ratelimit"
	nameTuned    = "Envoy + ratelimit, tuned"
)

// start starts the sides whose names contain text. A short run omits the tuned peer.
func start(scope *suite.Scope, p *plan, seed uint64, text string) (all sides) {
	begin := func(name string, gateway func(s *side)) {
		if !strings.Contains(name, text) {
			return
		}
		s := &side{name: name, model: newModel(scope, p.pace), load: load{plan: p, seed: seed}}
		// A killed Redis loses nothing that it has acknowledged, because the kernel has it before. This is not so with everysec, which
		// postpones writes, and not only their fsync, while the disk is busy.
		s.redis = testenv.Start(scope, testenv.Redis, "--appendonly", "yes", "--appendfsync", "no")
		gateway(s)
		all = append(all, s)
	}
	envoy := func(o envoyOptions) func(*side) {
		return func(s *side) {
			s.load.addresses = []string{startEnvoy(scope, o, p.budget, s.model, s.redis)}
			s.counted = func() int64 { return countedByRatelimit(scope, s.redis) }
		}
	}
	begin(nameHeadgate, func(s *side) {
		s.ours = true
		for range gateways {
			s.startGateway(scope)
		}
		s.counted = s.countedByHeadgate(scope)
	})
	begin(nameEnvoy, envoy(envoyOptions{}))
	if p != &short {
		begin(nameTuned, envoy(envoyOptions{countChunks: true, failureModeDeny: true}))
	}
	if len(all) == 0 {
		scope.Fatalf("-only %q: no side matches", text)
	}
	return all
}

// startGateway starts a gateway process with Headgate.
func (s *side) startGateway(scope *suite.Scope) {
	self, err := os.Executable()
	testenv.NoError(scope, err)
	own := settings{
		Listen: testenv.FreeAddress(scope), Redis: "redis://" + s.redis.Addr(), Model: s.model.address,
		Budget: s.load.plan.budget, Chunk: s.load.plan.chunk,
	}
	text, err := json.Marshal(own)
	testenv.NoError(scope, err)
	command := exec.CommandContext(scope.Context(), self, gatewayFlag, string(text))
	s.gateways = append(s.gateways, testenv.Run(scope, command, own.Listen))
	s.load.addresses = append(s.load.addresses, own.Listen)
}

// countedByHeadgate returns a function that reads the counter of the tenant.
func (s *side) countedByHeadgate(scope *suite.Scope) func() int64 {
	budget := s.load.plan.budget
	limiter, err := headgate.New(fleet.Open(scope, "redis://"+s.redis.Addr()), budgetRule(budget))
	testenv.NoError(scope, err)
	return func() int64 {
		d, err := limiter.Peek(scope.Context(), request(tenant, 1))
		testenv.NoError(scope, err)
		return budget - d.Limits[0].Remaining
	}
}

// recording is what happened when.
type recording struct{ marks []timeline.Mark }

// run runs the demand of all sides, and the faults unless it is calm. It takes longer than planned where the machine is too slow for the
// demand to exhaust the budget in time.
func (all sides) run(scope *suite.Scope, calm bool) *recording {
	p := all[0].load.plan
	began, r := time.Now(), &recording{}
	ctx, cancel := context.WithTimeout(scope.Context(), 5*p.lasts)
	defer cancel()
	tasks := []func(context.Context){all.sample(began)}
	for _, s := range all {
		tasks = append(tasks, s.load.run)
	}
	stop := suite.Background(ctx, tasks...)
	if !calm {
		r.marks = all.faults(ctx, scope, began)
	}
	suite.SleepUntil(ctx, began.Add(p.lasts))
	for !all.exhausted() && ctx.Err() == nil {
		scope.Sleep(100 * time.Millisecond)
	}
	stop()
	all.settle(scope)
	for _, s := range all {
		s.bill = append(s.bill, timeline.Point{At: max(p.lasts, s.bill[len(s.bill)-1].At), Total: dollars(s.model.spent())})
	}
	return r
}

// exhausted reports whether Headgate's side has denied calls and has ended all streams.
func (all sides) exhausted() bool {
	return !slices.ContainsFunc(all, func(s *side) bool {
		return s.ours && (s.load.calls[denied].Load() == 0 || s.model.running.Load() > 0)
	})
}

// faults kills a gateway, and then Redis for a while, and returns when that was.
func (all sides) faults(ctx context.Context, scope *suite.Scope, began time.Time) (marks []timeline.Mark) {
	p := all[0].load.plan
	wait := func(until time.Duration, label string) {
		suite.SleepUntil(ctx, began.Add(until))
		marks = append(marks, timeline.Mark{At: time.Since(began), Label: label})
	}
	wait(p.gatewayKilled, "gateway killed")
	for _, s := range all {
		if len(s.gateways) > 0 {
			s.gateways[0].Kill()
		}
	}
	wait(p.redisKilled, "Redis killed")
	for _, s := range all {
		s.redis.Kill()
	}
	wait(p.redisUp, "Redis up")
	for _, s := range all {
		s.redis.Restart(scope)
	}
	return marks
}

// sample returns a function that records the bills.
func (all sides) sample(began time.Time) func(context.Context) {
	return func(ctx context.Context) {
		for n := 0; ctx.Err() == nil; n++ {
			for _, s := range all {
				s.bill = append(s.bill, timeline.Point{At: time.Since(began), Total: dollars(s.model.spent())})
			}
			suite.SleepUntil(ctx, began.Add(time.Duration(n+1)*500*time.Millisecond))
		}
	}
}

// settle waits until the models have noticed that all clients have hung up.
func (all sides) settle(scope *suite.Scope) {
	for deadline := time.Now().Add(10 * time.Second); ; scope.Sleep(20 * time.Millisecond) {
		running := int64(0)
		for _, s := range all {
			running += s.model.running.Load()
		}
		if running == 0 {
			return
		}
		if time.Now().After(deadline) {
			scope.Fatalf("%d streams are still running after the end", running)
		}
	}
}

func dollars(micros int64) float64 { return float64(micros) / 1e6 }
