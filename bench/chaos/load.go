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
	// limit of the one hot subject for each window: a quarter of all requests are its own, 1.7 times what it may.
	limit  = 180
	window = 2 * time.Second
	// room is how many requests may wait for one node: at the usual rate answers in 300 ms would still not fill it.
	room = 64
)

// The subjects. Users share most requests and are never denied; each of the others has a rule of its own.
const (
	users      = 200
	hotUser    = users
	leasedUser = users + 1 // is never denied either; nodes lease its units
	bucketUser = users + 2 // asks for five times what its token bucket refills, until the fault and after
	freshUser  = users + 3 // begins to do so with the fault, with a full bucket
	subjects   = users + 4
)

// userName is the attribute that is counted by.
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
	Late    time.Duration // how much later it was sent, for which this program is to blame
	Latency time.Duration // from when it was due
	Node    int
	User    int
	Status  int // of HTTP; 0 if there was no answer
	Allowed bool
	Waits   bool      // it said when to ask again
	Path    string    // who decided
	Reset   time.Time // when the window ends that it was counted in
}

func (s *sample) hot() bool { return s.User == hotUser }

// accounted reports whether the store must have counted the request if it was allowed: its counter lasts longer than the run.
func (s *sample) accounted() bool { return s.User < users || s.User == leasedUser }

// byStore is true if the store has decided, or the node for it.
func (s *sample) byStore() bool { return s.Path == "store" || s.Path == "lease" || s.Path == "cache" }

// load sends requests by the clock, whether or not the ones before are answered.
type load struct {
	start time.Time
	rate  int           // requests a second
	fault time.Duration // when it is to happen, since the start
	mixed bool          // whether subjects beside users and the hot one ask, too
	nodes []*node

	mu      sync.Mutex
	samples []sample
}

// run ends with ctx, after the last answer.
func (l *load) run(ctx context.Context) {
	suite.SleepUntil(ctx, l.start)
	var under sync.WaitGroup
	defer under.Wait()
	waiting := make([]chan struct{}, len(l.nodes))
	for i := range waiting {
		waiting[i] = make(chan struct{}, room*l.rate/usualRate)
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
				l.ask(s)
				<-waiting[s.Node]
			})
		default:
			l.keep(s) // not sent in time, which is as bad as no answer
		}
	}
}

func (l *load) ask(s sample) {
	s.Late = time.Since(l.start) - s.At
	a, err := l.nodes[s.Node].ask(context.Background(), s.User)
	s.Latency = time.Since(l.start) - s.At
	s.Status = a.Status
	if err == nil {
		s.Allowed, s.Path, s.Reset, s.Waits = a.Allowed, a.Path, a.Reset, a.RetryAfter != nil && *a.RetryAfter > 0
	}
	l.keep(s)
}

func (l *load) keep(s sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples = append(l.samples, s)
}

// taken is what there is so far, in the order in which the requests were due.
func (l *load) taken() []sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	samples := slices.Clone(l.samples)
	slices.SortFunc(samples, func(a, b sample) int { return int(a.At - b.At) })
	return samples
}
