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

// exactLog admits a request if fewer than limit were admitted in the window before it. It shares nothing with SlidingLog.
type exactLog struct {
	admitted []int64 // times, oldest first
}

func (l *exactLog) admits(limit headgate.Limit, now int64) bool {
	for len(l.admitted) > 0 && l.admitted[0] <= now-limit.Window.Microseconds() {
		l.admitted = l.admitted[1:]
	}
	if int64(len(l.admitted)) >= limit.Count {
		return false
	}
	l.admitted = append(l.admitted, now)
	return true
}

// trial puts the same requests to a sliding window and to an exact log, each with its own past, and counts.
type trial struct {
	limit                        headgate.Limit
	requests, exact, more, fewer int // more were admitted by the sliding window alone, fewer by the log alone
}

type trialClient struct {
	window headgate.State
	log    exactLog
}

func (t *trial) ask(c *trialClient, now int64) {
	var r headgate.Result
	c.window, r = t.limit.Take(c.window, headgate.Charge{Cost: 1}, time.UnixMicro(now))
	exact := c.log.admits(t.limit, now)
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

// differently is the share of requests that the two decide differently, in percent.
func (t *trial) differently() float64 { return percent(t.more+t.fewer, t.requests) }

// excess is how much more the sliding window admits in all, in percent of what the log does; less than 0 is fewer.
func (t *trial) excess() float64 { return percent(t.more-t.fewer, t.exact) }

func (t *trial) String() string {
	return fmt.Sprintf("%s, %d requests, the exact log denies %.2f %%: %.2f %% are decided differently (%.2f %% admitted, %.2f %% denied), and %+.2f %% are admitted",
		t.limit, t.requests, percent(t.requests-t.exact, t.requests), t.differently(), percent(t.more, t.requests),
		percent(t.fewer, t.requests), t.excess())
}

const trialStart = 1_800_000_000_000_000

// traffic are shapes of it, each so many requests.
var traffic = map[string]func(t *trial, rng *rand.Rand, requests int){
	// Clients come every 20 seconds and ask for about ten things at once, 20 ms apart.
	"bursty": func(t *trial, rng *rand.Rand, requests int) {
		const visits, pause, things, gap = 1_000, 20e6, 10, 20e3
		for t.requests < requests {
			c, now := &trialClient{}, float64(trialStart)
			for range visits {
				now += rng.ExpFloat64() * pause
				for range 1 + int(rng.ExpFloat64()*things) {
					now += rng.ExpFloat64() * gap
					t.ask(c, int64(now))
				}
			}
		}
	},
	// Of 100,000 clients some ask far more than others: the first makes every seventh request.
	"zipf": func(t *trial, rng *rand.Rand, requests int) {
		const perSecond = 12.0
		clients := make([]trialClient, 100_000)
		who := rand.NewZipf(rng, 1.1, 1, uint64(len(clients)-1))
		for now := float64(trialStart); t.requests < requests; {
			now += rng.ExpFloat64() / perSecond * 1e6
			t.ask(&clients[who.Uint64()], int64(now))
		}
	},
	// Clients ask 25 times a minute on average, some of them several times as often, nine times as often by day as by night.
	"daily": func(t *trial, rng *rand.Rand, requests int) {
		const day, minute, mean, spread, swing = 86_400e6, 60e6, 25, 0.5, 0.8
		for t.requests < requests {
			c := &trialClient{}
			peak := mean * math.Exp(spread*rng.NormFloat64()-spread*spread/2) * (1 + swing) / minute
			for now := float64(trialStart); now < trialStart+day; {
				now += rng.ExpFloat64() / peak
				if rng.Float64()*(1+swing) < 1+swing*math.Sin(2*math.Pi*now/day) {
					t.ask(c, int64(now))
				}
			}
		}
	},
}

// A sliding window decides nearly as an exact log does where limits are met as they usually are, by a few requests in a
// hundred: at most 2 % of decisions differ, and as much is admitted. Under a limit half as high, with many denied, single
// decisions differ more, and what is admitted in all stays within 5 %.
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
				t.Error("that is more than 2 %")
			}
			if denied := percent(usual.requests-usual.exact, usual.requests); denied < 0.2 {
				t.Errorf("only %.2f %% were denied: the test shows too little", denied)
			}
			tight := trial{limit: usual.limit}
			tight.limit.Count /= 2
			shape(&tight, rand.New(rand.NewPCG(seed, 1)), requests/10)
			t.Logf("seed %d: %s", seed, &tight)
			if math.Abs(tight.excess()) > 5 {
				t.Error("that is more than 5 %")
			}
		})
	}
}
