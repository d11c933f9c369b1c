package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
)

// death is when a node was not there. Times are since the load began.
type death struct {
	node     int
	from, to time.Duration
}

// kill kills each node every two to eight seconds and starts it again, while Redis is well.
func (w *world) kill(length time.Duration) (deaths []death) {
	standalone()(w)
	startNodes(w)
	stop := w.begin(time.Now(), 0)
	end := time.Now().Add(length)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, n := range w.nodes {
		all.Go(func() {
			for {
				w.Sleep(2*time.Second + rand.N(6*time.Second))
				if time.Now().After(end) || w.Context().Err() != nil {
					return
				}
				from := time.Since(w.load.start)
				n.Kill()
				n.Start()
				mu.Lock()
				deaths = append(deaths, death{i, from, time.Since(w.load.start)})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	stop()
	w.awaitNone(pending)
	return deaths
}

func (w *world) judgeKills(deaths []death) (missed int) {
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
		used := w.used(user)
		twice += max(0, used-admitted[user]-maybe[user])
		never += max(0, admitted[user]-used)
	}
	r := suite.NewReport()
	r.Line(fmt.Sprintf("%d kills, %d requests, %d not decided by the store", len(deaths), len(samples), local),
		suite.Note("%d requests without an answer", unanswered),
		suite.Judged(elsewhere == 0, "of a node that was there: %d", elsewhere),
		suite.Judged(most.most <= 1, "hot ÷ limit, windows: %s, aim ≤ 1", most),
		suite.Note("units admitted and not charged: %d", never),
		suite.Judged(twice == 0, "units charged that nobody was or may have been admitted for: %d", twice))
	return r.Missed
}

// died reports whether the node was killed, or down, while it was asked.
func died(deaths []death, s *sample) bool {
	return slices.ContainsFunc(deaths, func(d death) bool { return d.node == s.Node && s.At <= d.to && s.At+s.Latency >= d.from })
}
