package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
)

// downtime is a period in which a node was down. Times are since the load began.
type downtime struct {
	node     int
	from, to time.Duration
}

// runKills kills and restarts each node every two to eight seconds, while Redis is available.
func (w *world) runKills(length time.Duration) (downtimes []downtime) {
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
				downtimes = append(downtimes, downtime{i, from, time.Since(w.load.start)})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	stop()
	w.awaitZero(pending)
	return downtimes
}

func (w *world) judgeKills(downtimes []downtime) (missed int) {
	samples := w.load.sorted()
	admitted, maybe := make([]int64, users), make([]int64, users)
	windows := map[time.Time]int{}
	var unanswered, unexplained, local int
	for i := range samples {
		s := &samples[i]
		switch {
		case s.Status != 200:
			unanswered++
			unexplained += boolToInt(!wasDown(downtimes, s))
			if s.User < users {
				maybe[s.User]++
			}
		case s.Allowed && s.hot():
			windows[s.Reset.Round(window)]++
		case s.Allowed && s.User < users:
			admitted[s.User]++
		}
		local += boolToInt(s.Status == 200 && !s.byStore())
	}
	var highest span
	for _, n := range windows {
		highest.add(float64(n) / limit)
	}
	var overcharged, uncharged int64
	for user := range admitted {
		used := w.used(user)
		overcharged += max(0, used-admitted[user]-maybe[user])
		uncharged += max(0, admitted[user]-used)
	}
	r := suite.NewReport()
	r.Line(fmt.Sprintf("%d kills, %d requests, %d not decided by the store", len(downtimes), len(samples), local),
		suite.Note("%d requests without a response", unanswered),
		suite.Judged(unexplained == 0, "of these at a running node: %d", unexplained),
		suite.Judged(highest.highest <= 1, "hot ÷ limit, windows: %s, target ≤ 1", highest),
		suite.Note("units admitted and not charged: %d", uncharged),
		suite.Judged(overcharged == 0, "units charged without an admission: %d", overcharged))
	return r.Missed
}

// wasDown reports whether the node was killed or down during the request.
func wasDown(downtimes []downtime, s *sample) bool {
	return slices.ContainsFunc(downtimes, func(d downtime) bool { return d.node == s.Node && s.At <= d.to && s.At+s.Latency >= d.from })
}
