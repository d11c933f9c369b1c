package main

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/bench/internal/regionjudge"
	"github.com/headgate/headgate/bench/internal/suite"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const (
	// responseTimeout is how long callers wait for a response.
	responseTimeout = 2 * time.Second
	// The subject busy has the load of the plan. The subject quiet has a part of it, which fits into any region's share.
	busy, quiet = "busy", "quiet"
	quietPart   = 0.05
)

// arrival is a request to be sent.
type arrival struct {
	at           time.Duration
	region, node int
	rule         string
	subject      string
	cost         int64
}

// arrivals returns all requests of a run, in the order in which they are sent: a Poisson process for each rule and subject, apart from
// the first request of each phase.
func (p *plan) arrivals() (all []arrival) {
	random := rand.New(rand.NewPCG(p.seed, loadStream))
	for _, r := range rules() {
		for _, subject := range []string{busy, quiet} {
			perSecond := r.rate() / r.meanCost() * p.demand[r.ID]
			if subject == quiet {
				perSecond = r.rate() / r.meanCost() * quietPart
			}
			at := time.Duration(0)
			for {
				phase, _ := p.phaseAt(at)
				if at += time.Duration(random.ExpFloat64() / perSecond / cmp.Or(phase.factor, 1) * float64(time.Second)); at >= p.length {
					break
				}
				all = append(all, arrival{at, p.regionAt(at, random), random.IntN(nodesPerRegion), r.ID, subject, 1 + random.Int64N(r.maxCost)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	return all
}

// regionAt draws the region of a request.
func (p *plan) regionAt(at time.Duration, random *rand.Rand) int {
	phase, within := p.phaseAt(at)
	weights := phase.weights(within)
	sum := 0.0
	for _, weight := range weights {
		sum += weight
	}
	draw := random.Float64() * sum
	for i, weight := range weights {
		if draw -= weight; draw < 0 {
			return i
		}
	}
	return len(weights) - 1
}

// load sends the requests of a run and records what happens to them.
type load struct {
	mu      sync.Mutex
	records []regionjudge.Record
	errors  map[string]int // how often requests had no response, by the reason
}

func newLoad() *load { return &load{errors: map[string]int{}} }

// run sends the requests, each when it is due, and returns after the last response.
func (l *load) run(ctx context.Context, w *world, start time.Time) {
	var sent sync.WaitGroup
	defer sent.Wait()
	for _, a := range w.plan.arrivals() {
		suite.SleepUntil(ctx, start.Add(a.at))
		if ctx.Err() != nil {
			return
		}
		sent.Go(func() { l.send(context.WithoutCancel(ctx), w.regions[a.region], &a) })
	}
}

// send sends a request from within a region to one of its servers.
func (l *load) send(ctx context.Context, r *region, a *arrival) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	record := regionjudge.Record{Region: r.name, Node: a.node, Rule: a.rule, Subject: a.subject, Cost: a.cost, Sent: time.Now().UnixMicro()}
	d, err := r.nodes[a.node].checks.Check(ctx, &checkv1.CheckRequest{
		Attributes: map[string]string{"path": "/" + a.rule, "user": a.subject}, Cost: a.cost,
	})
	record.Received = time.Now().UnixMicro()
	if err == nil && len(d.GetLimits()) == 1 {
		limit := d.GetLimits()[0]
		record.Allowed, record.Path, record.Remaining, record.Store = d.GetAllowed(), d.GetPath(), limit.GetRemaining(), d.GetTimeUs()
		if reset := limit.GetResetAfterUs(); reset > 0 && record.Store > 0 {
			record.Reset = record.Store + reset
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, record)
	switch {
	case err != nil:
		l.errors[status.Code(err).String()]++
	case record.Path == "":
		l.errors["no limit applied"]++
	}
}
