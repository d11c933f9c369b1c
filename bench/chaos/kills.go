package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
)

// death is when a node was not there. Times are since the load began.
type death struct {
	node     int
	from, to time.Duration
}

// runKills kills nodes at random and starts them again, while Redis is well.
func runKills(ctx context.Context, program string, length time.Duration) (failed int, err error) {
	scope := &paired.Scope{}
	defer scope.Close()
	w := &world{ctx: ctx, scope: scope, program: program, rate: usualRate}
	if err := standalone()(w); err != nil {
		return 0, err
	}
	if err := w.startNodes(); err != nil {
		return 0, err
	}
	stop := w.begin(time.Now(), 0)
	deaths, err := w.killNodes(time.Now().Add(length))
	stop()
	if err != nil {
		return 0, err
	}
	if err := w.awaitCharged(); err != nil {
		return 0, err
	}
	return w.judgeKills(deaths)
}

// killNodes kills each node every two to eight seconds.
func (w *world) killNodes(end time.Time) (deaths []death, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, n := range w.nodes {
		all.Go(func() {
			for {
				w.sleep(2*time.Second + rand.N(6*time.Second))
				if time.Now().After(end) || w.ctx.Err() != nil {
					return
				}
				from := time.Since(w.load.start)
				n.kill()
				failure := n.start(w.scope.Context())
				mu.Lock()
				deaths = append(deaths, death{i, from, time.Since(w.load.start)})
				if failure != nil {
					err = failure
				}
				mu.Unlock()
				if failure != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if err == nil {
		err = w.ctx.Err()
	}
	return deaths, err
}

func (w *world) judgeKills(deaths []death) (int, error) {
	samples := w.load.taken()
	admitted, maybe := make([]int64, users), make([]int64, users)
	windows := map[time.Time]int{}
	var unanswered, elsewhere, local int
	for i := range samples {
		s := &samples[i]
		switch {
		case s.Status != 200:
			unanswered++
			elsewhere += count(!died(deaths, s))
			if s.User < users {
				maybe[s.User]++
			}
		case s.Allowed && s.hot():
			windows[s.Reset.Round(window)]++
		case s.Allowed && s.User < users:
			admitted[s.User]++
		}
		local += count(s.Status == 200 && !s.byStore())
	}
	var most span
	for _, n := range windows {
		most.add(float64(n) / limit)
	}
	var twice, never int64
	for user := range admitted {
		used, err := w.nodes[0].used(w.ctx, user)
		if err != nil {
			return 0, err
		}
		twice += max(0, used-admitted[user]-maybe[user])
		never += max(0, admitted[user]-used)
	}
	fmt.Printf("%d kills, %d requests, %d without an answer, %d not decided by the store\n",
		len(deaths), len(samples), unanswered, local)
	fmt.Printf("%d units admitted and not charged\n", never)
	var v verdicts
	v.say(elsewhere == 0, "requests without an answer of a node that was there: %d", elsewhere)
	v.say(most.most <= 1, "hot ÷ limit, windows: %s, aim ≤ 1", most)
	v.say(twice == 0, "units charged that nobody was or may have been admitted for: %d", twice)
	return v.failed, nil
}

// died reports whether the node was killed, or down, while it was asked.
func died(deaths []death, s *sample) bool {
	for _, d := range deaths {
		if d.node == s.Node && s.At <= d.to && s.At+s.Latency >= d.from {
			return true
		}
	}
	return false
}

// verdicts counts aims that were missed.
type verdicts struct{ failed int }

func (v *verdicts) say(met bool, format string, args ...any) {
	verdict := "PASS"
	if !met {
		verdict = "FAIL"
		v.failed++
	}
	fmt.Printf(verdict+"  "+format+"\n", args...)
}
