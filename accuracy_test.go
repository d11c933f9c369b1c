package headgate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// exactLog allows a request if fewer than the limit were allowed in the window before it. It shares no code with SlidingLog.
type exactLog struct {
	allowed []int64 // times, oldest first
}

func (l *exactLog) allows(limit headgate.Limit, now int64) bool {
	for len(l.allowed) > 0 && l.allowed[0] <= now-limit.Window.Microseconds() {
		l.allowed = l.allowed[1:]
	}
	if int64(len(l.allowed)) >= limit.Count {
		return false
	}
	l.allowed = append(l.allowed, now)
	return true
}

// trial makes the same requests on a sliding window and on an exact log, each with its own state, and counts the decisions.
type trial struct {
	limit                        headgate.Limit
	requests, exact, more, fewer int // more: allowed only by the sliding window; fewer: allowed only by the log
}

type trialClient struct {
	window headgate.State
	log    exactLog
}

func (t *trial) request(c *trialClient, now int64) {
	var r headgate.Result
	c.window, r = t.limit.Take(c.window, headgate.Charge{Cost: 1}, time.UnixMicro(now))
	exact := c.log.allows(t.limit, now)
	t.requests++
	if exact {
		t.exact++
	}
	switch {
	case r.Allowed && !exact:
		t.more++
	case !r.Allowed && exact:
		t.fewer++
	}
}

func percent(n, of int) float64 { return 100 * float64(n) / float64(of) }

// differently returns the percentage of requests that the two decide differently.
func (t *trial) differently() float64 { return percent(t.more+t.fewer, t.requests) }

// excess returns how many more requests the sliding window allows in total, in percent of the log; negative if it allows fewer.
func (t *trial) excess() float64 { return percent(t.more-t.fewer, t.exact) }

func (t *trial) String() string {
	return fmt.Sprintf("%s, %d requests, the exact log denies %.2f %%: %.2f %% are decided differently (%.2f %% allowed, %.2f %% denied), and %+.2f %% are allowed",
		t.limit, t.requests, percent(t.requests-t.exact, t.requests), t.differently(), percent(t.more, t.requests),
		percent(t.fewer, t.requests), t.excess())
}

const trialStart = 1_800_000_000_000_000

// traffic are patterns of requests.
var traffic = map[string]func(t *trial, rng *rand.Rand, requests int){
	// Clients make about ten requests every 20 seconds, 20 ms apart.
	"bursty": func(t *trial, rng *rand.Rand, requests int) {
		const visits, pause, things, gap = 1_000, 20e6, 10, 20e3
		for t.requests < requests {
			c, now := &trialClient{}, float64(trialStart)
			for range visits {
				now += rng.ExpFloat64() * pause
				for range 1 + int(rng.ExpFloat64()*things) {
					now += rng.ExpFloat64() * gap
					t.request(c, int64(now))
				}
			}
		}
	},
	// Of 100,000 clients, some make far more requests than others: the first makes every seventh request.
	"zipf": func(t *trial, rng *rand.Rand, requests int) {
		const perSecond = 12.0
		clients := make([]trialClient, 100_000)
		who := rand.NewZipf(rng, 1.1, 1, uint64(len(clients)-1))
		for now := float64(trialStart); t.requests < requests; {
			now += rng.ExpFloat64() / perSecond * 1e6
			t.request(&clients[who.Uint64()], int64(now))
		}
	},
	// Clients make 25 requests per minute on average, some of them several times as many, and nine times as many by day as by night.
	"daily": func(t *trial, rng *rand.Rand, requests int) {
		const day, minute, mean, spread, swing = 86_400e6, 60e6, 25, 0.5, 0.8
		for t.requests < requests {
			c := &trialClient{}
			peak := mean * math.Exp(spread*rng.NormFloat64()-spread*spread/2) * (1 + swing) / minute
			for now := float64(trialStart); now < trialStart+day; {
				now += rng.ExpFloat64() / peak
				if rng.Float64()*(1+swing) < 1+swing*math.Sin(2*math.Pi*now/day) {
					t.request(c, int64(now))
				}
			}
		}
	},
}

// TestSlidingWindowAccuracy compares a sliding window with an exact log. If a few percent of the requests exceed the limit, as
// usual, at most 2 % of the decisions differ, and the same number is allowed. Under half that limit, with many denials, more single
// decisions differ, and the number of allowed requests differs by at most 5 %.
func TestSlidingWindowAccuracy(t *testing.T) {
	t.Parallel()
	const seed = 1
	requests := 10_000_000
	info, ok := debug.ReadBuildInfo()
	if testing.Short() || ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		requests /= 20
	}
	for name, shape := range traffic {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			usual := trial{limit: headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 100, Window: time.Minute}}
			shape(&usual, rand.New(rand.NewPCG(seed, 0)), requests)
			t.Logf("seed %d: %s", seed, &usual)
			if usual.differently() > 2 || math.Abs(usual.excess()) > 2 {
				t.Error("must be at most 2 %")
			}
			if denied := percent(usual.requests-usual.exact, usual.requests); denied < 0.2 {
				t.Errorf("only %.2f %% were denied: too few to be meaningful", denied)
			}
			tight := trial{limit: usual.limit}
			tight.limit.Count /= 2
			shape(&tight, rand.New(rand.NewPCG(seed, 1)), requests/10)
			t.Logf("seed %d: %s", seed, &tight)
			if math.Abs(tight.excess()) > 5 {
				t.Error("must be at most 5 %")
			}
		})
	}
}
