package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/storewrap"
)

// reservations compares a reservation, which is two calls, with a check that the store decides: on a counter without holds, and on
// the same counter. Its other holds last for 4 to 60 minutes.
func reservations(s *paired.Suite) {
	server := testenv.Start(s, testenv.Redis)
	month := headgate.Quota(1_000_000_000, headgate.Month, nil)
	refill := headgate.Per(1_000_000_000, 30*24*time.Hour)
	limiter, err := headgate.New(fleet.Wrap(s, "redis://"+server.Addr(), storewrap.Options{Deadline: time.Second}),
		headgate.Rule{ID: "bucket", Match: headgate.Match{Path: "/bucket"}, By: []string{"user"}, Limit: refill, Strict: true},
		headgate.Rule{ID: "quota", Match: headgate.Match{Path: "/quota"}, By: []string{"user"}, Limit: month, Strict: true},
		headgate.Rule{ID: "charged", Match: headgate.Match{Path: "/charged"}, By: []string{"user"}, Limit: month, OnHoldExpiry: headgate.ChargeHold})
	testenv.NoError(s, err)
	for _, holds := range []int{10, 10_000} {
		users := 20_000 / holds
		fill(s, limiter, users, holds)
		var variants []paired.Variant
		for _, rule := range []string{"bucket", "quota"} {
			for _, concurrency := range []struct {
				name    string
				callers int
			}{{"one caller", 1}, {"32 callers", 32}} {
				r := reserver{limiter: limiter, rule: rule, users: users, holds: holds}
				charged := reserver{limiter: limiter, rule: "charged", users: users, holds: holds}
				for _, v := range []struct {
					name string
					do   func(caller, n int) error
				}{
					{"check", r.check("plain")},
					{"check held", r.check("held")},
					{"commit", r.commit},
					{"cancel", r.cancel},
					{"commit charged", charged.commit},
				} {
					variants = append(variants, paired.Variant{
						Name: fmt.Sprintf("%s, %s, %s", v.name, rule, concurrency.name), Callers: concurrency.callers, Do: v.do,
						ServerCPU: func() time.Duration { return server.CPU(s) },
					})
				}
			}
		}
		got := s.Measure(fmt.Sprintf("Reserve and Commit or Cancel, %d holds per counter", holds), s.Rounds, s.Slice, variants)
		for i := 0; i < len(variants); i += 5 {
			charged := variants[i+4].Name
			s.Note(fmt.Sprintf("%s, %d holds ÷ check, Redis CPU", charged, holds), got.Ratio(charged, variants[i].Name, paired.ServerCPU))
			for _, settled := range variants[i+2 : i+4] {
				what := fmt.Sprintf("%s, %d holds ÷ check", settled.Name, holds)
				s.ExpectMax(what+", Redis CPU", got.Ratio(settled.Name, variants[i].Name, paired.ServerCPU), 2.2)
				s.Note(what+" of the same counter, Redis CPU", got.Ratio(settled.Name, variants[i+1].Name, paired.ServerCPU))
			}
		}
	}
}

// reserver makes calls on the counters of a rule.
type reserver struct {
	limiter      *headgate.Limiter
	rule         string
	users, holds int
}

func (r *reserver) request(kind string, i int, cost int64) headgate.Request {
	user := kind + strconv.Itoa(r.holds) + "/" + strconv.Itoa(i%r.users)
	return headgate.Request{Attributes: headgate.Attributes{"path": "/" + r.rule, "user": user}, Cost: cost}
}

// check returns checks of counters that have holds or not.
func (r *reserver) check(kind string) func(caller, n int) error {
	return func(caller, n int) error {
		return decided(r.limiter.Check(context.Background(), r.request(kind, bare.Spread(caller, n), 5)))
	}
}

func (r *reserver) reserve(i int, hold time.Duration) ([]byte, error) {
	reservation, err := r.limiter.Reserve(context.Background(), r.request("held", i, 5), hold)
	return reservation.Token, decided(reservation.Decision, err)
}

func (r *reserver) commit(caller, n int) error {
	token, err := r.reserve(bare.Spread(caller, n), 0)
	if err != nil {
		return err
	}
	return decided(r.limiter.Commit(context.Background(), token, headgate.Request{Cost: 3}))
}

func (r *reserver) cancel(caller, n int) error {
	token, err := r.reserve(bare.Spread(caller, n), 0)
	if err != nil {
		return err
	}
	return decided(r.limiter.Cancel(context.Background(), token))
}

// decided expects that the store allowed a request.
func decided(d headgate.Decision, err error) error {
	if err == nil && (!d.Allowed || d.Path != headgate.PathStore) {
		err = fmt.Errorf("allowed: %t, decided by %v", d.Allowed, d.Path)
	}
	return err
}

// fill makes holds on each user's counters.
func fill(s *paired.Suite, limiter *headgate.Limiter, users, holds int) {
	var all errgroup.Group
	all.SetLimit(callers)
	for _, rule := range []string{"bucket", "quota"} {
		r := reserver{limiter: limiter, rule: rule, users: users, holds: holds}
		for i := range users * holds {
			all.Go(func() error {
				_, err := r.reserve(i, 4*time.Minute+time.Duration(bare.Spread(0, i)%56)*time.Minute)
				return err
			})
		}
	}
	testenv.NoError(s, all.Wait())
}
