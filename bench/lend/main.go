// Command lend measures what regions cost: a check of a limit that regions share, compared with one that each region counts on its own, and
// units that one region lends to another. It ends with a verdict for each target of docs/regions.md and fails if one is missed.
package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

const callers = 64

// Subjects of the limits that are used little, and of those that are used up.
const (
	many = 100_000
	few  = 200
)

func main() {
	paired.Main(61, 200*time.Millisecond, func(s *paired.Suite) {
		w := open(s)
		checks(s, w)
		transfers(s, w)
	})
}

// world is two regions, eu and us, of which eu decides requests.
type world struct {
	each, shared *headgate.Limiter
	alone        *headgate.Limiter // of a region that shares limits and reaches no other
	eu, us       *region.Store
	shares       *region.Shares
	servers      []*testenv.Server
	inner        *redisstore.Store // of eu
}

// link calls another region in this process.
type link struct{ to **region.Store }

func (l link) Lend(ctx context.Context, req region.LoanRequest) (region.Loan, error) {
	return (*l.to).Lend(ctx, req), nil
}

func open(s *paired.Suite) *world {
	w := &world{servers: []*testenv.Server{testenv.Start(s, testenv.Redis), testenv.Start(s, testenv.Redis)}}
	members := []region.Member{{Name: "eu", Weight: 1}, {Name: "us", Weight: 1}}
	w.shares = region.NewShares(members, "eu")
	inner := fleet.Open(s, "redis://"+w.servers[0].Addr())
	w.inner = inner
	w.eu = region.New(inner, w.shares, map[string]region.Link{"us": link{&w.us}})
	w.us = region.New(fleet.Open(s, "redis://"+w.servers[1].Addr()), region.NewShares(members, "us"), nil)
	s.Cleanup(w.eu.Close)
	s.Cleanup(w.us.Close)
	wrap := func(store headgate.Store) *storewrap.Store {
		wrapped := storewrap.New(store, storewrap.Options{Deadline: time.Second})
		s.Cleanup(wrapped.Close)
		return wrapped
	}
	rules := func(regions headgate.Regions) *headgate.RuleSet {
		units := int64(1) // per region, the same in both cases
		if regions == headgate.SharedRegions {
			units = int64(len(members))
		}
		set, err := headgate.Compile(
			headgate.Rule{ID: "many-" + regions.String(), Match: headgate.Match{Path: "/many"}, By: []string{"user"}, Limit: headgate.PerDay(50_000 * units), Strict: true, Regions: regions},
			headgate.Rule{ID: "few-" + regions.String(), Match: headgate.Match{Path: "/few"}, By: []string{"user"}, Limit: headgate.PerMinute(600 * units), Strict: true, Regions: regions},
			headgate.Rule{ID: "leased-" + regions.String(), Match: headgate.Match{Path: "/leased"}, By: []string{"user"}, Limit: headgate.PerMinute(500_000 * units), Regions: regions},
		)
		testenv.NoError(s, err)
		return set
	}
	w.each = headgate.NewLimiter(wrap(inner), rules(headgate.EachRegion), headgate.Options{})
	alone := region.New(inner, w.shares, nil)
	s.Cleanup(alone.Close)
	w.alone = headgate.NewLimiter(wrap(alone), rules(headgate.SharedRegions), headgate.Options{Share: w.shares.Share})
	w.shared = headgate.NewLimiter(wrap(w.eu), rules(headgate.SharedRegions), headgate.Options{Share: w.shares.Share})
	return w
}

// cpu returns the CPU time of both Redis servers.
func (w *world) cpu(s *paired.Suite) func() time.Duration {
	return func() (sum time.Duration) {
		for _, server := range w.servers {
			sum += server.CPU(s)
		}
		return sum
	}
}

// checks compares checks of limits that regions share with those that they do not. The CPU of those that borrow is that of both
// regions, with the loans.
func checks(s *paired.Suite, w *world) {
	var variants []paired.Variant
	for _, v := range []struct {
		path, name string
		limiter    *headgate.Limiter
		subjects   int
	}{
		{"many", "each", w.each, many},
		{"many", "shared", w.shared, many},
		{"few", "each", w.each, few},
		{"few", "shared", w.alone, few},
		{"few", "borrowing", w.shared, few},
		{"leased", "each", w.each, few},
		{"leased", "shared", w.shared, few},
	} {
		variants = append(variants, paired.Variant{
			Name: v.path + ", " + v.name, Callers: callers, ServerCPU: w.cpu(s),
			Do: func(caller, n int) error {
				_, err := v.limiter.Check(context.Background(), headgate.Request{Attributes: headgate.Attributes{
					"path": "/" + v.path,
					"user": v.name + strconv.Itoa(bare.Spread(caller, n)%v.subjects), // variants have no subject in common
				}})
				return err
			},
		})
	}
	got := s.Measure("checks: many subjects that use little; few that use up their share, alone or with loans; few with leases", s.Rounds, s.Slice, variants)
	for _, name := range []string{"many", "few", "leased"} {
		ratio := got.Ratio(name+", shared", name+", each", paired.ClientCPU)
		s.ExpectMax(name+": shared ÷ each, CPU per check", ratio, 1.05)
	}
	s.Note("few: borrowing ÷ each, CPU per check with the loans, of both regions", got.Ratio("few, borrowing", "few, each", paired.ClientCPU))
	s.Note("loan requests", single(float64(w.eu.Stats().Requests)))
}

// transfers measures what it costs to lend units: the lender's part alone, and a call over the network.
func transfers(s *paired.Suite, w *world) {
	limit := headgate.Limit{Algorithm: headgate.FixedWindow, Count: headgate.MaxCost, Window: time.Hour}
	subjects := make([]headgate.Subject, many)
	for i := range subjects {
		subjects[i] = headgate.SubjectOf("transfer", strconv.Itoa(i))
	}
	counter := headgate.CounterOf("transfer", "", limit.Algorithm)
	charge := func(caller, n int) headgate.Charge {
		subject := subjects[bare.Spread(caller, n)%many]
		return headgate.Charge{Subject: subject, Counter: counter, Limit: w.shares.Share(subject, &limit), Cost: 1}
	}
	request := func(caller, n int) region.LoanRequest {
		c := charge(caller, n)
		terms, _ := c.Terms(time.Now())
		return region.LoanRequest{
			From: "eu", Epoch: w.shares.Epoch(), Subject: c.Subject, Counter: counter, Whole: limit, Window: terms.Start, Units: 10,
		}
	}
	lent := func(loan region.Loan, err error) error {
		if err == nil && loan.Units == 0 {
			err = fmt.Errorf("nothing was lent: %s", loan.Rejection)
		}
		return err
	}
	check := func(caller, n int) error {
		var results [1]headgate.Result
		return w.us.Inner.Take(context.Background(), []headgate.Charge{charge(caller, n)}, results[:])
	}
	for n := range many / callers { // so that all counters exist
		for caller := range callers {
			testenv.NoError(s, check(caller, n))
		}
	}
	key := w.inner.Key(subjects[bare.Spread(0, 0)%many])
	memory := func() float64 {
		bytes, _ := w.servers[1].Must(s, "MEMORY", "USAGE", key).(int64)
		return float64(bytes)
	}
	before := memory()
	testenv.NoError(s, lent(w.us.Lend(context.Background(), request(0, 0)), nil))
	s.Note("memory of Redis for a subject that has lent, bytes more", single(memory()-before))
	c := connect(s, w)
	got := s.Measure("lending", s.Rounds, s.Slice, []paired.Variant{
		{Name: "check", Callers: callers, ServerCPU: w.cpu(s), Do: check},
		{Name: "loan", Callers: callers, ServerCPU: w.cpu(s), Do: func(caller, n int) error {
			return lent(w.us.Lend(context.Background(), request(caller, n)), nil)
		}},
		{Name: "call", Callers: callers, ServerCPU: w.cpu(s), Do: func(caller, n int) error {
			return lent(c.link.Lend(context.Background(), request(caller, n)))
		}},
	})
	s.Note("lender's part of a loan ÷ check, Redis CPU", got.Ratio("loan", "check", paired.ServerCPU))
	s.Note("lender's part of a loan, Redis CPU µs", got.Median("loan", paired.ServerCPU))
	s.Note("a loan over the network, CPU µs of both servers", got.Median("call", paired.ClientCPU))
	sent, start := 200, c.bytes.Load()
	for n := range sent {
		testenv.NoError(s, lent(c.link.Lend(context.Background(), request(0, n))))
	}
	s.Note("a loan over the network, bytes with TLS", single(float64(c.bytes.Load()-start)/float64(sent)))
}

// single returns a number that was measured once.
func single(n float64) paired.Median { return paired.Median{Value: n, Low: n, High: n} }
