package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/rpc"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/ruledoc"
	"github.com/headgate/headgate/storewrap"
)

// Worker is a process that uses the library as the README shows.
type Worker struct {
	spec    Spec
	limiter *headgate.Limiter
	close   []func()

	mu     sync.Mutex
	groups groups
	out    *os.File
}

// work runs a worker until its standard input ends, and then returns its leases.
func work() error {
	n, server := &Worker{}, rpc.NewServer()
	if err := server.Register(n); err != nil {
		return err
	}
	server.ServeConn(stdio{os.Stdin, os.Stdout})
	for _, end := range slices.Backward(n.close) {
		end()
	}
	return nil
}

// Start connects to the store.
func (n *Worker) Start(s Spec, ok *bool) (err error) {
	n.spec, *ok = s, true
	redis, err := redisstore.Open(n.spec.Redis)
	if err != nil {
		return err
	}
	store := storewrap.New(redis, storewrap.Options{Deadline: n.spec.Deadline})
	n.close = []func(){redis.Close, store.Close}
	if n.limiter, err = headgate.New(store); err != nil {
		return err
	}
	if err := n.start(); err != nil {
		return err
	}
	if n.out, err = os.Create(n.spec.Out); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := redis.Ready(ctx); err != nil || s.Listen == "" {
		return err
	}
	return n.serve()
}

// start applies the rules of the specification.
func (n *Worker) start() error {
	if n.spec.Document == "" {
		return n.setRules(n.spec.Groups)
	}
	n.groups = n.spec.Groups
	d, err := ruledoc.Parse("rules.yaml", []byte(n.spec.Document))
	if err != nil {
		return err
	}
	return d.Apply(n.limiter)
}

// Do runs a command.
func (n *Worker) Do(c Command, r *Reply) error {
	switch c.Op {
	case opRules:
		return n.setRules(c.Groups)
	case opLoad:
		n.load(&c)
	case opClaim:
		n.claims(&c)
	case opRetry:
		n.retries(&c)
	case opSpend:
		r.Spent = spend(&c, n.checkAndRecord)
	default:
		r.Record, r.Token, r.Peeks = n.request(&c)
	}
	return nil
}

// setRules makes each group a rule. A rule's name does not depend on its limits, so that the rule keeps its counters.
func (n *Worker) setRules(g groups) error {
	var rules []headgate.Rule
	for i, group := range g {
		rule := headgate.Rule{
			ID: groupName(i), By: []string{"user"},
			Match: headgate.Match{Attributes: map[string]headgate.Pattern{"route": headgate.OneOf(groupName(i))}},
		}
		if len(group) == 1 {
			rule.Limit = toLimit(n.spec.Limits[group[0]])
		} else {
			rule.Limits = map[string]headgate.Limit{}
			for at, limit := range group {
				rule.Limits["l"+strconv.Itoa(at)] = toLimit(n.spec.Limits[limit])
			}
		}
		rules = append(rules, rule)
	}
	set, err := headgate.Compile(rules...)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.groups = g
	n.limiter.SetRules(set)
	return nil
}

func groupName(i int) string { return "g" + strconv.Itoa(i) }

func toLimit(l judge.Limit) headgate.Limit {
	limit := headgate.Limit{Count: l.Count, Burst: l.Burst, Window: time.Duration(l.Window) * time.Microsecond}
	for limit.Algorithm.String() != l.Algorithm {
		limit.Algorithm++
	}
	if l.Clock {
		limit.Align = headgate.OnClock
	}
	return limit
}

// request sends one request as an application would.
func (n *Worker) request(c *Command) (r judge.Record, token []byte, peeks []judge.Record) {
	ctx := context.Background()
	if c.Leave > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Leave)
		defer cancel()
	}
	request := headgate.Request{Attributes: c.attributes(), Cost: c.Cost}
	if c.Path != "" {
		request.Cost = 0 // the cost table decides
	}
	r = judge.Record{Op: c.Op, Process: n.spec.Process, Caller: c.Caller, Subject: c.Subject, Cost: c.Cost, Note: c.Note}
	var d headgate.Decision
	var err error
	r.Sent = time.Now().UnixMicro()
	switch c.Op {
	case judge.OpPeek:
		d, err = n.limiter.Peek(ctx, request)
	case judge.OpRefund:
		d, err = n.limiter.Refund(ctx, request)
	case judge.OpReserve:
		var held headgate.Reservation
		held, err = n.limiter.Reserve(ctx, request, c.Hold)
		d, token = held.Decision, held.Token
	case judge.OpCommit:
		d, err = n.limiter.Commit(ctx, c.Token, headgate.Request{Cost: c.Cost})
	case judge.OpCancel:
		d, err = n.limiter.Cancel(ctx, c.Token)
	default:
		d, err = n.limiter.Check(ctx, request)
	}
	r.Received = time.Now().UnixMicro()
	if err != nil {
		r.Error = err.Error()
	}
	n.describe(&r, &d, c.Group)
	for i := range d.Limits {
		if c.Op == judge.OpPeek && d.Path == headgate.PathStore {
			of := r
			of.Limits, of.Limit, of.Remaining = nil, n.limitOf(c.Group, d.Limits[i].Name), d.Limits[i].Remaining
			peeks = append(peeks, of)
		}
	}
	return r, token, peeks
}

// limitOf returns the index of a limit of a group by its name in the rule.
func (n *Worker) limitOf(group int, name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	limits := n.groups[group]
	if at, err := strconv.Atoi(strings.TrimPrefix(name, "l")); err == nil && at < len(limits) {
		return limits[at]
	}
	return limits[0]
}

// describe copies a decision into a record.
func (n *Worker) describe(r *judge.Record, d *headgate.Decision, group int) {
	n.mu.Lock()
	limits := n.groups[group]
	n.mu.Unlock()
	r.Allowed, r.Path, r.RetryAfter = d.Allowed, string(d.Path), -1
	if d.RetryAfter >= 0 {
		r.RetryAfter = int64((d.RetryAfter + time.Microsecond - 1) / time.Microsecond)
	}
	r.Limit = limits[0]
	if len(limits) > 1 {
		r.Limits = slices.Clone(limits)
	}
	denied := d.DeniedBy()
	for i := range d.Limits {
		l := &d.Limits[i]
		// With several limits, the node may have decided some itself. Only the store's own time is exact.
		if l.DecidedBy() == headgate.PathStore && (denied == nil || denied == l) {
			r.Store = l.Time.UnixMicro()
		}
		if i == 0 || l.Remaining < r.Remaining {
			r.Remaining = l.Remaining
		}
		if l == denied {
			r.Limit = n.limitOf(group, l.Name)
		}
	}
}

// checkAndRecord sends one request and records it immediately, since this process may be killed at any time.
func (n *Worker) checkAndRecord(c *Command) judge.Record {
	r, _, _ := n.request(c)
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = json.NewEncoder(n.out).Encode(r)
	return r
}

// load runs callers that send checks independently of each other.
func (n *Worker) load(c *Command) {
	eachCaller(c, func(caller int, _ *rand.Rand) {
		b := &c.Bulk
		one := *c
		one.Op, one.Caller, one.Cost = judge.OpCheck, c.Caller+caller, max(1, c.Cost)
		// Callers with a period start evenly spread over it.
		next := time.UnixMicro(b.Start).Add(b.Period * time.Duration(caller) / time.Duration(b.Callers))
		time.Sleep(time.Until(next))
		for i := 0; (b.Requests == 0 || i < b.Requests) && (b.Until == 0 || time.Now().UnixMicro() < b.Until); i++ {
			n.checkAndRecord(&one)
			if next = next.Add(b.Period); b.Period > 0 {
				time.Sleep(time.Until(next))
			} else if b.Pause > 0 {
				time.Sleep(b.Pause)
			}
		}
	})
}
