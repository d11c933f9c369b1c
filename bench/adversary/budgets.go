package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/internal/testenv"
)

// budget is the number of units of each budget. A unit takes more than eight minutes to refill.
const budget, month = 5000, 30 * day

// costs are the requests of each budget, most expensive first: those of its cost table, and those of a rule that charges its counters.
var costs = []Entry{
	{Method: "POST", Path: "/generate", Cost: 50, Weight: 1},
	{Suffix: "-batch", Method: "POST", Path: "/items", Cost: 20, Weight: 1},
	{Method: "POST", Path: "/search", Cost: 10, Weight: 2},
	{Method: "POST", Path: "/items", Cost: 5, Weight: 4},
	{Suffix: "-batch", Method: "GET", Path: "/items", Cost: 2, Weight: 4},
	{Method: "GET", Path: "/items", Cost: 1, Weight: 12},
}

// costTable returns the keys of a rule that have its requests cost what costs says. The suffix selects the entries.
func costTable(suffix string) string {
	text := &strings.Builder{}
	text.WriteString("    costs:\n")
	for _, e := range costs {
		if e.Suffix == suffix {
			fmt.Fprintf(text, "      - {match: {method: %s, path: %s}, cost: %d}\n", e.Method, e.Path, e.Cost)
		}
	}
	return text.String()
}

// budgets has 100 callers of four processes, library nodes and servers, spend budgets that several rules with cost tables share: at
// once, so slowly that nodes lease units, and with callers that leave before the response. They must be admitted exactly the budget.
func budgets(w *world) {
	// The month begins in two weeks, whatever the day.
	anchor := 1 + (time.Now().UTC().Day()+13)%28
	limits := [][]judge.Limit{
		{{Algorithm: judge.TokenBucket, Count: budget, Window: month}},
		{{Algorithm: judge.LeakyBucket, Count: budget, Window: month, MaxDelay: month / budget * (budget - 1)}},
		{{Algorithm: judge.FixedWindow, Count: budget, Window: month}},
		{{Algorithm: judge.SlidingWindow, Count: budget, Window: month}},
		{{Algorithm: judge.SlidingLog, Count: budget, Window: month}},
		{{Algorithm: judge.FixedWindow, Count: budget, Window: month, AnchorDay: anchor}},
		{{Algorithm: judge.TokenBucket, Count: budget, Window: month}, {Algorithm: judge.FixedWindow, Count: 2 * budget, Window: month}},
	}
	rules := map[string][]judge.Limit{}
	for i, l := range limits {
		rules[groupName(i)] = l
	}
	s := spending{world: w, rules: w.document(rules, costTable(""))}
	for i := range limits {
		s.rules.text += fmt.Sprintf("  - id: %[1]s-batch\n    match: {route: %[1]s-batch}\n    counter: %[1]s\n%[2]s", groupName(i), costTable("-batch"))
		s.groups = append(s.groups, s.rules.limits[groupName(i)])
	}
	s.run("mixed", 2, 2)
	if !w.short {
		s.run("library", 4, 0)
		s.run("served", 0, 4)
	}
}

// spending spends budgets with one fleet of processes after the other.
type spending struct {
	*world
	rules  document
	groups groups

	processes []spender
	burst     sync.Mutex // one burst at a time
}

// spender is a process that spends budgets.
type spender interface {
	// spend runs callers as a command says, and returns what they spent.
	spend(c Command) (Spent, error)
	// check sends and records one request.
	checkOne(c Command) (judge.Record, error)
	// peeks returns a record of the count of each limit of a group, decided by the store; nil if it did not decide.
	peeks(c Command) ([]judge.Record, error)
}

// run starts a fleet and has it spend budgets.
func (s *spending) run(fleet string, workers, servers int) {
	_, address := s.redis()
	s.processes = nil
	for _, k := range s.spawn(workers, Spec{Redis: address, Deadline: longDeadline, Groups: s.groups, Document: s.rules.text}) {
		s.processes = append(s.processes, k)
	}
	for _, n := range s.serve(servers, address, longDeadline, s.rules) {
		s.processes = append(s.processes, n)
	}
	s.header.Nodes = processes
	bursts, paced := s.some(1, 5), s.some(1, 2)
	s.judge(judge.Check{Kind: judge.KindBudget, Subjects: "at once/" + fleet + "/", Runs: bursts * len(s.groups)},
		judge.Check{Kind: judge.KindBudget, Subjects: "leaving/" + fleet + "/", Runs: bursts * len(s.groups)},
		judge.Check{Kind: judge.KindBudget, Subjects: "paced/" + fleet + "/", Runs: paced * len(s.groups), Leased: 10})
	s.awaitFleet()
	var all errgroup.Group
	for run := range paced {
		for group := range s.groups {
			// Slow enough that the budget lasts for more than the two seconds below which nodes hardly lease.
			all.Go(func() error { return s.spend("paced", fleet, group, run, Bulk{Period: 240 * time.Millisecond}) })
		}
	}
	for run := range bursts {
		for group := range s.groups {
			all.Go(func() error { return s.spend("at once", fleet, group, run, Bulk{}) })
			all.Go(func() error { return s.spend("leaving", fleet, group, run, Bulk{Leaves: 20}) })
		}
	}
	testenv.NoError(s, all.Wait())
}

// spend has 100 callers spend a budget. If a node decided without the store, which a loaded machine may cause, the run proves nothing
// and is repeated with another budget.
func (s *spending) spend(kind, fleet string, group, run int, b Bulk) error {
	const tries = 5
	for try := range tries {
		c := Command{Op: opSpend, Group: group, Subject: fmt.Sprintf("%s/%s/%s/%d.%d", kind, fleet, groupName(group), run, try), Bulk: b}
		spent, err := s.spendOnce(c)
		if err == nil {
			err = s.finish(c, &spent)
		}
		if err != nil || !spent.Local {
			return err
		}
	}
	return nil
}

func (s *spending) spendOnce(c Command) (spent Spent, err error) {
	if c.Bulk.Period == 0 {
		s.burst.Lock()
		defer s.burst.Unlock()
	}
	seed := fnv.New64()
	_, _ = fmt.Fprint(seed, s.header.Seed, c.Subject)
	start := time.Now().Add(5 * time.Millisecond).UnixMicro()
	var all errgroup.Group
	var mu sync.Mutex
	for i, p := range s.processes {
		all.Go(func() error {
			one := c
			one.Caller, one.Bulk.Callers, one.Bulk.Table = i*each, each, costs
			one.Bulk.Start, one.Bulk.Seed = start, seed.Sum64()+uint64(i)
			got, err := p.spend(one)
			mu.Lock()
			defer mu.Unlock()
			spent.add(got)
			return err
		})
	}
	err = all.Wait()
	return spent, err
}

// finish has each process request single units until all are denied, and records the final counts. Nodes return the units that they
// have leased within leaseTerm.
func (s *spending) finish(c Command, spent *Spent) error {
	unit := costs[len(costs)-1]
	c.Op, c.Method, c.Path, c.Cost = judge.OpCheck, unit.Method, unit.Path, unit.Cost
	for begin, last := time.Now(), time.Now(); ; s.Sleep(50 * time.Millisecond) {
		for _, p := range s.processes {
			for {
				r, err := p.checkOne(c)
				if err != nil {
					return err
				}
				spent.addRecord(&r)
				if !r.Allowed {
					break
				}
				last = time.Now()
			}
		}
		// If callers left, the sum is unknown: the budget is used up if no unit has come back for longer than denials are cached.
		if spent.Admitted >= budget || spent.Left > 0 && time.Since(last) > 600*time.Millisecond || time.Since(begin) > leaseTerm {
			break
		}
	}
	c.Op = judge.OpPeek
	for begin := time.Now(); ; s.Sleep(50 * time.Millisecond) {
		peeks, err := s.processes[0].peeks(c)
		if err != nil {
			return err
		}
		returned := len(peeks) > 0
		for _, r := range peeks {
			returned = returned && s.header.Limits[r.Limit].Count-r.Remaining <= spent.Admitted+spent.Left
		}
		if returned || time.Since(begin) > leaseTerm {
			s.addRecords(peeks...)
			return nil
		}
	}
}

// spend has callers send requests of a table until one that costs a unit is denied.
func spend(c *Command, check func(*Command) judge.Record) (spent Spent) {
	var choice []Entry
	for _, e := range c.Bulk.Table {
		for range e.Weight {
			choice = append(choice, e)
		}
	}
	var mu sync.Mutex
	eachCaller(c, func(caller int, random *rand.Rand) {
		one, own := *c, Spent{}
		one.Op, one.Caller = judge.OpCheck, c.Caller+caller
		next := time.UnixMicro(c.Bulk.Start).Add(c.Bulk.Period * time.Duration(caller) / time.Duration(c.Bulk.Callers))
		for denied := false; !denied; next = next.Add(c.Bulk.Period) {
			time.Sleep(time.Until(next))
			e := choice[random.IntN(len(choice))]
			one.Suffix, one.Method, one.Path, one.Cost, one.Leave = e.Suffix, e.Method, e.Path, e.Cost, 0
			if c.Bulk.Leaves > 0 && random.IntN(c.Bulk.Leaves) == 0 {
				one.Leave = time.Duration(1 + random.Int64N(int64(2*time.Millisecond)))
			}
			r := check(&one)
			own.addRecord(&r)
			denied = !r.Allowed && r.Cost == 1 && r.Note != judge.NoteLeft || r.Error != ""
		}
		mu.Lock()
		defer mu.Unlock()
		spent.add(own)
	})
	return spent
}

func (k *worker) spend(c Command) (Spent, error) {
	r, err := k.do(c)
	return r.Spent, err
}

func (k *worker) checkOne(c Command) (judge.Record, error) {
	r, err := k.do(c)
	if err == nil {
		k.world.addRecords(r.Record)
	}
	return r.Record, err
}

func (k *worker) peeks(c Command) ([]judge.Record, error) {
	r, err := k.do(c)
	return r.Peeks, err
}

func (s *server) spend(c Command) (Spent, error) {
	return spend(&c, func(one *Command) judge.Record { return s.send(groupName(c.Group), one.attributes(), one) }), nil
}

func (s *server) checkOne(c Command) (judge.Record, error) {
	return s.send(groupName(c.Group), c.attributes(), &c), nil
}

func (s *server) peeks(c Command) (peeks []judge.Record, err error) {
	d, err := s.Decide(s.world.Context(), "/v1/peek", c.attributes())
	if err != nil || d.Path != "store" {
		return nil, err
	}
	for _, l := range d.Limits {
		for _, i := range s.limits[groupName(c.Group)] {
			if s.world.header.Limits[i].Count == l.Count {
				now := time.Now().UnixMicro()
				peeks = append(peeks, judge.Record{
					Op: judge.OpPeek, Process: s.process, Subject: c.Subject, Sent: now, Received: now, Path: "store", Limit: i, Remaining: l.Remaining,
				})
			}
		}
	}
	return peeks, nil
}
