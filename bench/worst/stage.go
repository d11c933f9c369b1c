package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

const (
	// coarse and fine are slow log thresholds in microseconds. The server also logs the commands that a script calls, which
	// slows the script down: so the threshold is high enough for that not to matter. fine is for requests that coarse does not
	// log.
	coarse = 50
	fine   = 5

	batch   = 100 // charges per call of the preparation
	workers = 4
)

// stage is the server and store on which requests are measured.
type stage struct {
	testing.TB
	server *testenv.Server
	redis  *redis.Client
	store  *redisstore.Store

	salts     int
	yardstick []float64
	perStep   time.Duration // of recent preparations
}

// newStage starts a dedicated server.
func newStage(t testing.TB) *stage {
	s := &stage{TB: t, perStep: 20 * time.Microsecond, server: testenv.Start(t, testenv.Redis, "--slowlog-max-len", "4096")}
	s.store = fleet.Open(t, "redis://"+s.server.Addr())
	s.redis = redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	t.Cleanup(func() { _ = s.redis.Close() })
	return s
}

// errNotLogged is returned if no call of a request reached the slow log threshold.
var errNotLogged = errors.New("no script call of the request in the slow log")

// measure makes one request and returns the duration of its slowest script call in microseconds, from the slow log. The store's own
// calls, which announce the node, have another key.
func (s *stage) measure(charges []headgate.Charge, results []headgate.Result) (slowest float64, err error) {
	keys, length := map[string]bool{}, 0
	for i := range charges {
		key := s.store.Key(charges[i].Subject)
		keys[key], length = true, len(key)
	}
	s.server.Must(s, "SLOWLOG", "RESET")
	if err := s.warm(20); err != nil {
		return 0, err
	}
	if err := s.take(charges, results); err != nil {
		return 0, err
	}
	entries, err := s.redis.SlowLogGet(s.Context(), -1).Result()
	testenv.NoError(s, err)
	err = errNotLogged
	for i := range entries {
		if isOf(&entries[i], keys, length) {
			slowest, err = max(slowest, float64(entries[i].Duration.Microseconds())), nil
		}
	}
	return slowest, err
}

// warm makes plain charges, so that the server's code is in the CPU caches, as under load, and the Lua interpreter has
// collected the garbage of earlier calls.
func (s *stage) warm(calls int) error {
	charges := []headgate.Charge{plainCharge("warm")}
	results := make([]headgate.Result, 1)
	for range calls {
		if err := s.take(charges, results); err != nil {
			return err
		}
	}
	return nil
}

// plainCharge returns a charge on the token bucket of a subject.
func plainCharge(name string) headgate.Charge {
	return headgate.Charge{
		Subject: headgate.SubjectOf(name), Counter: headgate.CounterOf("plain", "", headgate.TokenBucket),
		Limit: headgate.PerHour(1_000_000), Cost: 1,
	}
}

func (s *stage) take(charges []headgate.Charge, results []headgate.Result) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return s.store.Take(ctx, charges, results)
}

// logFrom sets the slow log threshold.
func (s *stage) logFrom(micros int) {
	s.server.Must(s, "CONFIG", "SET", "slowlog-log-slower-than", strconv.Itoa(micros))
}

// try prepares a genome several times, on different subjects, and measures each. If the calls are too fast for a threshold, it
// repeats everything with the next one; the samples are zero if there is none.
func (s *stage) try(g *genome, times int, thresholds ...int) ([]float64, error) {
	for _, threshold := range thresholds {
		s.logFrom(threshold)
		if samples, err := s.sample(g, times); !errors.Is(err, errNotLogged) {
			return samples, err
		}
	}
	return make([]float64, times), nil
}

func (s *stage) sample(g *genome, times int) ([]float64, error) {
	s.server.Must(s, "FLUSHALL") // so that old keys do not slow down the server
	scenes := make([]*scene, times)
	for i := range scenes {
		s.salts++
		scenes[i] = newScene(g, s.salts)
	}
	if err := s.prepare(g, scenes); err != nil {
		return nil, fmt.Errorf("preparation: %w", err)
	}
	samples := make([]float64, times)
	for i, scene := range scenes {
		charges := scene.request()
		var err error
		if samples[i], err = s.measure(charges, make([]headgate.Result, len(charges))); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// prepare makes the charges of the preparation, in batches by several workers, and waits until the request is due.
func (s *stage) prepare(g *genome, scenes []*scene) error {
	began := time.Now()
	lapse := began.Add(50*time.Millisecond + time.Duration(len(scenes))*s.predict(g)*3/2)
	var all errgroup.Group
	all.SetLimit(workers)
	var small []step
	start := func(steps []step) { all.Go(func() error { return s.do(steps, lapse) }) }
	for _, scene := range scenes {
		for _, c := range scene.counters {
			if steps := c.steps(); len(steps) < batch {
				small = append(small, steps...)
			} else {
				start(steps)
			}
			if len(small) >= batch {
				start(small)
				small = nil
			}
		}
	}
	start(small)
	if err := all.Wait(); err != nil {
		return err
	}
	if steps := time.Duration(len(scenes) * g.steps()); steps > batch {
		s.perStep = (s.perStep + time.Since(began)/steps) / 2
	}
	time.Sleep(time.Until(due(g.When, lapse, time.Now())))
	return nil
}

// predict returns the estimated duration of the preparation of a genome.
func (s *stage) predict(g *genome) time.Duration { return time.Duration(g.steps()) * s.perStep }

// repeats returns how often to measure a genome whose result matters.
func (s *stage) repeats(g *genome) int {
	if s.predict(g) > time.Second {
		return 3
	}
	return 7
}

// due returns when to make the request.
func due(when timing, lapse, now time.Time) time.Time {
	if now.After(lapse) {
		lapse = now
	}
	const margin = 2 * time.Millisecond
	second := lapse.Truncate(time.Second).Add(time.Second)
	switch when {
	case afterLapse:
		return lapse.Add(margin)
	case afterExpiry:
		return second.Add(margin)
	case afterCleanup:
		return second.Add(300 * time.Millisecond)
	default:
		return now
	}
}

// do makes the charges of steps in order, in batches.
func (s *stage) do(steps []step, lapse time.Time) error {
	for part := range slices.Chunk(steps, batch) {
		charges, results := make([]headgate.Charge, len(part)), make([]headgate.Result, len(part))
		now := time.Now()
		for i, step := range part {
			charges[i] = step.charge(now, lapse)
		}
		if err := s.take(charges, results); err != nil {
			return err
		}
		for i, step := range part {
			step.record(&charges[i], &results[i])
		}
	}
	return nil
}

// measureYardstick makes a plain charge on a token bucket several times. It records the mean of the middle half, which has a
// finer resolution than the server's microseconds.
func (s *stage) measureYardstick(times int) {
	s.logFrom(fine)
	testenv.NoError(s, s.warm(1000))
	charges := []headgate.Charge{plainCharge("yardstick")}
	results := make([]headgate.Result, 1)
	var micros []float64
	for range times {
		m, err := s.measure(charges, results)
		if errors.Is(err, errNotLogged) {
			m, err = fine, nil // it was faster than the threshold
		}
		testenv.NoError(s, err)
		micros = append(micros, m)
	}
	s.yardstick = append(s.yardstick, middle(micros))
}

// yard returns the yardstick: the median of its measurements so far.
func (s *stage) yard() float64 { return paired.Of(s.yardstick).Value }

// middle returns the mean of the middle half of values.
func middle(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	v = v[len(v)/4 : len(v)-len(v)/4]
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
