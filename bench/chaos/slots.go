package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

// slotFault is one way to disturb nodes that share a concurrency limit. It has a table of its own, since its requests last.
type slotFault struct {
	name  string
	short bool // whether it runs with -short, which has a shorter lease
	build func(*world)
	run   func(*slotFleet) []slotFigure
}

// slotFigure is a figure. One that is timed may be missed on a machine that stalls.
type slotFigure struct {
	suite.Figure
	timed bool
}

const (
	defaultLease, shortLease = 10 * time.Second, 2 * time.Second
	// slotMargin is how long nodes may take in addition to a time that depends on the lease.
	slotMargin = 500 * time.Millisecond
	slotOutage = 5 * time.Second
	// maxSlotStall is how long this program may not run: the nodes have probably not run either.
	maxSlotStall = 200 * time.Millisecond
)

func slotFaults() []*slotFault {
	return []*slotFault{
		{name: "slots: a node killed", build: standalone(), run: slotsKilled},
		{name: "slots: FLUSHALL", short: true, build: standalone(), run: slotsFlushed},
		{name: "slots: Sentinel, the primary killed", build: sentinels, run: slotsFailedOver},
		{name: "slots: connections reset every 300 ms", build: behindProxy, run: slotsReset},
		{name: "slots: Redis unavailable for 5 s, with AOF", build: standalone(aof...), run: slotsWithoutRedis(2)},
		{name: "slots: Redis unavailable for 5 s, back empty", build: standalone(), run: slotsWithoutRedis(3)},
	}
}

// runSlotFaults runs the faults and returns the number of rows that missed a target.
func runSlotFaults(scope *suite.Scope, chosen []*slotFault, attempts int, lease time.Duration) (missed int) {
	if len(chosen) == 0 {
		return 0
	}
	fmt.Println()
	report := suite.NewReport()
	for _, f := range chosen {
		report.Line(f.name, f.runUndisturbed(scope, attempts, lease)...)
	}
	return report.Missed
}

// runUndisturbed repeats a fault if only times were missed. If the machine stalled in every try, times are not judged.
func (f *slotFault) runUndisturbed(scope *suite.Scope, attempts int, lease time.Duration) (figures []suite.Figure) {
	for attempt := 1; ; attempt++ {
		var all []slotFigure
		s := &slotFleet{lease: lease}
		testenv.NoError(scope, scope.Run(func(own *suite.Scope) {
			s.world = &world{Scope: own}
			f.build(s.world)
			s.start()
			all = f.run(s)
			s.close()
		}))
		all = append(all, slotFigure{Figure: suite.Judged(s.errors == 0, "errors %d (0)", s.errors)})
		slow := false
		figures = nil
		for _, g := range all {
			if !g.Met && g.timed {
				slow = true
				if attempt == attempts && s.stall > maxSlotStall {
					g.Figure = suite.Note("%s: not judged, as the machine stalled", g.Text)
				}
			}
			figures = append(figures, g.Figure)
		}
		if !slow || attempt == attempts {
			return figures
		}
		scope.Logf("%s: slow, the machine stalled for %s", f.name, s.stall)
	}
}

// slotFleet is nodes with a concurrency limit, and the requests that this program has in flight at them.
type slotFleet struct {
	*world
	lease  time.Duration
	nodes  []*slotNode
	client http.Client
	stall  time.Duration // the longest of this program
	end    func()        // of the watch for stalls

	mu                sync.Mutex
	inFlight, highest int
	errors            int // responses that are neither 200 nor 429
}

// slotNode is a node process.
type slotNode struct {
	*testenv.Program
	address string
	mu      sync.Mutex
	open    []func() // ends the requests in flight
}

// start starts the nodes and returns when they have discovered each other.
func (s *slotFleet) start() {
	self, err := os.Executable()
	testenv.NoError(s, err)
	for range nodeCount {
		n := &slotNode{address: testenv.FreeAddress(s)}
		n.Program = testenv.Run(s, exec.Command(self, slotNodeFlag, s.address, n.address, s.lease.String()), n.address) //nolint:noctx // the scope ends it
		s.nodes = append(s.nodes, n)
	}
	s.client.Transport = &http.Transport{MaxIdleConnsPerHost: 1000}
	s.Sleep(2200 * time.Millisecond)
	s.end = suite.Background(s.Context(), s.watch)
}

// watch measures the longest stall of this program.
func (s *slotFleet) watch(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; {
		suite.SleepUntil(ctx, last.Add(10*time.Millisecond))
		now := time.Now()
		s.stall = max(s.stall, now.Sub(last))
		last = now
	}
}

// close ends all requests.
func (s *slotFleet) close() {
	for _, n := range s.nodes {
		s.release(n)
	}
	s.end()
}

// begin sends a request to a node, and reports whether it is in flight.
func (s *slotFleet) begin(n *slotNode) bool {
	ctx, cancel := context.WithCancel(s.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.address, http.NoBody)
	testenv.NoError(s, err)
	request.Header.Set("X-User", slotUser["header.x-user"])
	response, err := s.client.Do(request) //nolint:bodyclose // finish closes it
	if err == nil && response.StatusCode == http.StatusOK {
		n.mu.Lock()
		n.open = append(n.open, func() {
			cancel()
			_ = response.Body.Close()
		})
		n.mu.Unlock()
		s.add(1)
		return true
	}
	defer cancel()
	if err != nil || response.StatusCode != http.StatusTooManyRequests {
		s.mu.Lock()
		s.errors++
		s.mu.Unlock()
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	return false
}

// add counts requests in flight.
func (s *slotFleet) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight += n
	s.highest = max(s.highest, s.inFlight)
}

// fill begins requests at a node, and repeats those that it denied because the machine stalled.
func (s *slotFleet) fill(n *slotNode, count int) {
	for end := time.Now().Add(10 * time.Second); count > 0; {
		if s.begin(n) {
			count--
		} else if time.Now().After(end) {
			s.Fatalf("%d in flight: a request was denied", s.inFlight)
		}
	}
}

// finish ends the latest request at a node, if there is one: the first ones last.
func (s *slotFleet) finish(n *slotNode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := len(n.open) - 1; last >= 0 {
		s.add(-1)
		n.open[last]()
		n.open = n.open[:last]
	}
}

// release ends all requests at a node.
func (s *slotFleet) release(n *slotNode) {
	for len(n.open) > 0 {
		s.finish(n)
	}
}

// flood has several clients begin requests at nodes until ctx ends. They end each request after hold, or never if it is 0.
func (s *slotFleet) flood(hold time.Duration, nodes ...*slotNode) (stop func()) {
	var all []func(context.Context)
	for _, n := range nodes {
		for range 8 {
			all = append(all, func(ctx context.Context) {
				for ctx.Err() == nil {
					if began := s.begin(n); began && hold == 0 {
						continue
					} else if began {
						suite.SleepUntil(ctx, time.Now().Add(hold))
						s.finish(n)
					}
					suite.SleepUntil(ctx, time.Now().Add(10*time.Millisecond))
				}
			})
		}
	}
	return suite.Background(s.Context(), all...)
}

// used returns how many units the store counts; -1 if it does not answer.
func (s *slotFleet) used() int {
	text, status, err := fleet.Fetch(s.Context(), &s.client, http.MethodGet, "http://"+s.nodes[0].address+"/used", "")
	n, convert := strconv.Atoi(string(text))
	if err != nil || status != http.StatusOK || convert != nil {
		return -1
	}
	return n
}

// settled waits until the store has counted exactly what is in flight for longer than nodes wait before they verify it. It returns how
// long after a time it last counted anything else.
func (s *slotFleet) settled(since time.Time) (last time.Duration) {
	const steady, limit = 1500 * time.Millisecond, 15 * time.Second
	for {
		used, now := s.used(), time.Since(since)
		s.mu.Lock()
		differs := used != s.inFlight
		s.mu.Unlock()
		if differs {
			last = now
		}
		if now-last > steady || now > limit || s.Context().Err() != nil {
			return last
		}
		s.Sleep(5 * time.Millisecond)
	}
}

// repair returns how long after a loss of counters the store may lack units.
func (s *slotFleet) repair() time.Duration { return s.lease/3 + slotMargin/3 }

// within returns a figure for a time, with more time where the lease is short.
func (s *slotFleet) within(what string, got, target time.Duration) slotFigure {
	if s.lease < defaultLease {
		target *= 3
	}
	return slotFigure{suite.MaxDuration(what, got, target), true}
}

const countRight = "the store's count is right after"

// maxInFlight returns a figure for the most requests that were in flight at a time, in limits.
func (s *slotFleet) maxInFlight(limits int) slotFigure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slotFigure{Figure: suite.Judged(s.highest <= limits*slotLimit, "in flight at most %d (≤ %d)", s.highest, limits*slotLimit)}
}

// slotsKilled kills a node with a third of the limit in flight.
func slotsKilled(s *slotFleet) []slotFigure {
	for _, n := range s.nodes {
		s.fill(n, slotLimit/nodeCount)
	}
	s.Sleep(s.lease / 2) // it is renewed at least once
	victim := s.nodes[nodeCount-1]
	began := time.Now()
	victim.Kill()
	s.release(victim)
	stop := s.flood(0, s.nodes[:nodeCount-1]...)
	for s.inFlight < slotLimit && time.Since(began) < 2*s.lease {
		s.Sleep(5 * time.Millisecond)
	}
	freed := time.Since(began)
	s.Sleep(time.Second)
	stop()
	return []slotFigure{
		s.within("its slots are free after", freed, s.lease+slotMargin),
		{suite.Judged(freed >= s.lease/2, "not before %s", suite.FormatDuration(s.lease/2)), true},
		s.maxInFlight(1),
	}
}

// slotsFlushed loses the counters of nodes. Two of them only renew their leases; the third uses up the whole limit again.
func slotsFlushed(s *slotFleet) []slotFigure {
	for _, n := range s.nodes {
		s.fill(n, slotLimit/nodeCount)
	}
	s.Sleep(time.Second)
	began := time.Now()
	s.redis.Must(s, "FLUSHALL")
	stop := s.flood(0, s.nodes[1])
	repaired := s.settled(began)
	stop()
	return []slotFigure{s.within(countRight, repaired, s.repair()), s.maxInFlight(2)}
}

// slotsFailedOver kills a primary while requests begin and end.
func slotsFailedOver(s *slotFleet) []slotFigure {
	for _, n := range s.nodes {
		s.fill(n, slotLimit/nodeCount-5)
	}
	stop := s.flood(50*time.Millisecond, s.nodes...)
	s.Sleep(time.Second)
	s.load = &load{start: time.Now()}
	failOver(s.world)
	stop()
	return []slotFigure{s.within(countRight, s.settled(s.announced), s.repair()), s.maxInFlight(2)}
}

// slotsReset resets connections while requests begin and end.
func slotsReset(s *slotFleet) []slotFigure {
	for _, n := range s.nodes {
		s.fill(n, slotLimit/nodeCount-5)
	}
	stop := s.flood(50*time.Millisecond, s.nodes...)
	s.load = &load{start: time.Now()}
	reset(s.world)
	stop()
	return []slotFigure{s.within(countRight, s.settled(time.Now()), 5*time.Second), s.maxInFlight(2)}
}

// slotsWithoutRedis kills Redis while one node has the whole limit in flight. The others use their shares, and what a restarted Redis offers.
func slotsWithoutRedis(limits int) func(*slotFleet) []slotFigure {
	return func(s *slotFleet) []slotFigure {
		s.fill(s.nodes[0], slotLimit)
		stop := s.flood(0, s.nodes[1:]...)
		s.Sleep(time.Second)
		s.redis.Kill()
		s.Sleep(slotOutage)
		s.mu.Lock()
		shares := s.inFlight - slotLimit
		s.mu.Unlock()
		s.redis.Restart(s)
		began := time.Now()
		repaired := s.settled(began)
		stop()
		return []slotFigure{
			{Figure: suite.Note("admitted by shares %d", shares)},
			s.within(countRight, repaired, s.repair()), s.maxInFlight(limits),
		}
	}
}
