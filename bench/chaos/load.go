package main

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
)

const (
	usualRate = 600 // requests a second, over all nodes
	// limit of the hot subject per window. It sends a quarter of all requests, 1.7 times its limit.
	limit  = 180
	window = 2 * time.Second
	// maxInFlight is the number of requests that may wait for one node: at the usual rate, latencies of 300 ms do not reach it.
	maxInFlight = 64
)

// The subjects. Users share most requests and are never denied; each of the others has a rule of its own.
const (
	users      = 200
	hotUser    = users
	leasedUser = users + 1 // never denied; nodes lease its units
	bucketUser = users + 2 // requests five times the refill of its token bucket, from the start
	freshUser  = users + 3 // the same, from the fault on, with a full bucket
	subjects   = users + 4
)

// userName returns the user attribute of a subject.
func userName(user int) string { return "user-" + strconv.Itoa(user) }

// pathOf returns the path that the rule of a subject matches.
func pathOf(user int) string {
	switch user {
	case hotUser:
		return "/hot"
	case leasedUser:
		return "/leased"
	case bucketUser, freshUser:
		return "/bucket"
	default:
		return "/spread"
	}
}

// sample is one request as its caller saw it.
type sample struct {
	At      time.Duration // when it was due, since the load began
	Late    time.Duration // how much later this program sent it
	Latency time.Duration // from when it was due
	Sent    bool          // false if too many requests were waiting for the node
	Node    int
	User    int
	Status  int // of HTTP; 0 if there was no response
	Allowed bool
	Waits   bool      // whether it had retry_after
	Path    string    // of the decision
	Reset   time.Time // end of the window that it was counted in
}

func (s *sample) hot() bool { return s.User == hotUser }

// accounted reports whether the store must have counted the request if it was allowed: its counter outlives the run.
func (s *sample) accounted() bool { return s.User < users || s.User == leasedUser }

// byStore reports whether the store decided, or the node by a lease or a cached denial.
func (s *sample) byStore() bool { return s.Path == "store" || s.Path == "lease" || s.Path == "cache" }

// load is an open-loop load: it sends requests by the clock, whether or not earlier ones have returned.
type load struct {
	start time.Time
	rate  int           // requests a second
	fault time.Duration // its time, since the start
	mixed bool          // whether the leased and bucket subjects send requests too
	nodes []*node

	mu      sync.Mutex
	samples []sample
}

// run sends requests until ctx ends, and returns after the last response.
func (l *load) run(ctx context.Context) {
	suite.SleepUntil(ctx, l.start)
	var under sync.WaitGroup
	defer under.Wait()
	waiting := make([]chan struct{}, len(l.nodes))
	for i := range waiting {
		waiting[i] = make(chan struct{}, maxInFlight*l.rate/usualRate)
	}
	spread := 0
	for i := 0; ; i++ {
		s := sample{At: time.Duration(i) * time.Second / time.Duration(l.rate), Node: i % len(l.nodes)}
		switch turn := i / len(l.nodes); {
		case turn%4 == 0:
			s.User = hotUser
		case l.mixed && turn%12 == 1:
			s.User = leasedUser
		case l.mixed && turn%12 == 5:
			s.User = bucketUser
		case l.mixed && turn%12 == 9 && s.At >= l.fault:
			s.User = freshUser
		default:
			s.User = spread % users
			spread++
		}
		if suite.Sleep(time.Until(l.start.Add(s.At))); ctx.Err() != nil {
			return
		}
		select {
		case waiting[s.Node] <- struct{}{}:
			under.Go(func() {
				l.check(s)
				<-waiting[s.Node]
			})
		default:
			l.add(s) // not sent in time, which counts as no response
		}
	}
}

func (l *load) check(s sample) {
	s.Sent, s.Late = true, time.Since(l.start)-s.At
	a, err := l.nodes[s.Node].check(context.Background(), s.User)
	s.Latency = time.Since(l.start) - s.At
	s.Status = a.Status
	if err == nil {
		s.Allowed, s.Path, s.Reset, s.Waits = a.Allowed, a.Path, a.Reset, a.RetryAfter != nil && *a.RetryAfter > 0
	}
	l.add(s)
}

func (l *load) add(s sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples = append(l.samples, s)
}

// sorted returns the samples so far, in the order in which they were due.
func (l *load) sorted() []sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	samples := slices.Clone(l.samples)
	slices.SortFunc(samples, func(a, b sample) int { return int(a.At - b.At) })
	return samples
}
