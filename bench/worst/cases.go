package main

import (
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// named is a named request that every run measures.
type named struct {
	name string
	genome
}

// fixedCases returns the named requests that need no receipts.
func fixedCases() []named {
	buckets := block{
		Counters: 255, Spread: true, Limit: headgate.PerHour(1_000_000), Used: 10, Charges: []gene{{Repeat: 1}},
	}
	cases := []named{{"255 buckets on 255 subjects", genome{Blocks: []block{buckets}}}}
	const (
		many     = "64 full logs of 1,000 on 64 subjects"
		maxCount = headgate.MaxLogCount
		middle   = 75 // the entries are up to half a window old
	)
	for _, charge := range []struct {
		name string
		gene
	}{{"plain charge", gene{Repeat: 1}}, {"reserve", gene{Kind: reserve, Repeat: 1}}} {
		held := block{
			Counters: headgate.MaxWeight, Limit: headgate.PerHour(1_000_000), Holds: 700, HoldMix: skewedHold, Charges: []gene{charge.gene},
		}
		cases = append(cases, named{"64 buckets of one subject, 700 holds each: " + charge.name, genome{Blocks: []block{held}}})
	}
	for _, c := range []struct {
		name                     string
		counters, count, entries int
		charge                   gene
	}{
		{many + ": one denied", 64, 1_000, 1_000, gene{}},
		{many + ": forced", 64, 1_000, 1_000, gene{Kind: force}},
		{many + ": a credit of half", 64, 1_000, 1_000, gene{Kind: credit, Cost: half}},
		{"a log of 10,000: one allowed", 1, maxCount, maxCount - 1, gene{}},
		{"a log of 10,000: one denied", 1, maxCount, maxCount, gene{}},
		{"a log of 10,000: half of it denied", 1, maxCount, maxCount, gene{Cost: half}},
		{"a log of 10,000: forced with an age", 1, maxCount, maxCount, gene{Kind: forceAged, Where: middle}},
		{"a log of 10,000: a credit of half", 1, maxCount, maxCount, gene{Kind: credit, Cost: half}},
	} {
		c.charge.Repeat = 1
		logs := block{
			Counters: c.counters, Spread: true, Entries: c.entries,
			Limit:   headgate.Limit{Algorithm: headgate.SlidingLog, Count: int64(c.count), Window: time.Hour},
			Charges: []gene{c.charge},
		}
		cases = append(cases, named{c.name, genome{Blocks: []block{logs}}})
	}
	return cases
}

// heldBucket is a token bucket with holds, and the durations of calls on it.
type heldBucket struct {
	*counter
	size                           int // number of holds, including the one being reserved
	plain, reserve, commit, cancel []float64
}

// newHeldBucket prepares a bucket with holds − 1 holds.
func (s *stage) newHeldBucket(holds int) *heldBucket {
	s.salts++
	b := &heldBucket{size: holds, counter: &counter{
		block:   &block{Counters: 1, Limit: headgate.PerHour(headgate.MaxCost), Used: 10, Holds: holds - 1, HoldMix: evenHolds},
		subject: headgate.SubjectOf("holds", strconv.Itoa(s.salts)),
		id:      headgate.CounterOf("holds", "", headgate.TokenBucket),
	}}
	testenv.NoError(s, s.do(b.steps(), time.Time{}))
	if len(b.held) != b.Holds {
		s.Fatalf("the store granted %d holds of %d", len(b.held), b.Holds)
	}
	return b
}

// measureHolds measures the calls on buckets in turn, so that a disturbance affects all of them.
func (s *stage) measureHolds(buckets []*heldBucket, rounds int) {
	s.logFrom(fine)
	testenv.NoError(s, s.warm(1000))
	draw := newSource(1)
	for range rounds {
		for _, b := range buckets {
			s.holdRound(b, draw)
		}
	}
}

// holdRound makes each kind of call on a bucket, which has as many holds afterwards as before.
func (s *stage) holdRound(b *heldBucket, draw *source) {
	results := make([]headgate.Result, 1)
	measure := func(into *[]float64, charge headgate.Charge) headgate.Receipt {
		m, err := s.measure([]headgate.Charge{charge}, results)
		testenv.NoError(s, err)
		*into = append(*into, m)
		return results[0].Receipt
	}
	charge := headgate.Charge{Subject: b.subject, Counter: b.id, Limit: b.Limit, Cost: 1}
	release := func(cost int64) headgate.Charge {
		i, last := draw.IntN(len(b.held)), len(b.held)-1
		released := charge
		released.Cost, released.Release = cost, b.held[i]
		b.held[i] = b.held[last]
		b.held = b.held[:last]
		return released
	}
	hold := func() {
		held := charge
		held.Hold = time.Minute + time.Duration(draw.Int64N(int64(headgate.MaxHold-time.Minute)))
		b.held = append(b.held, measure(&b.reserve, held))
	}
	measure(&b.plain, charge)
	hold()
	measure(&b.commit, release(1))
	hold()
	measure(&b.cancel, release(0))
}
