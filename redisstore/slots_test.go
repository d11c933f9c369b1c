package redisstore

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// TestSlotsWithHostileIDs acquires units for every id that occurs at any position of a stored counter, within and across holders: only
// an id at the beginning of a holder is that holder's.
func TestSlotsWithHostileIDs(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	target := openWithClock(t, standalone(server), "hostile", nil)
	store, _ := target.Store.(*Store)
	target.SetTime(time.Unix(2_000_000_000, 123_456_000))
	limit := headgate.Limit{Algorithm: headgate.Concurrency, Count: headgate.MaxCost, Window: time.Minute}
	counter := headgate.CounterOf("hostile", "", limit.Algorithm)
	for _, holders := range []int{4, 12} { // with short replies too
		subject := headgate.SubjectOf("hostile", string(rune(holders)))
		known := map[uint64]int64{}
		acquire := func(id uint64, units int64) {
			t.Helper()
			charges := []headgate.Charge{{Subject: subject, Counter: counter, Limit: limit, Cost: units, Holder: id, Seq: 1}}
			var results [1]headgate.Result
			if err := store.Take(t.Context(), charges, results[:]); err != nil {
				t.Fatal(err)
			}
			known[id] += units
			if got := results[0].HolderUnits; got != known[id] {
				t.Errorf("holder %#x has %d units, want %d", id, got, known[id])
			}
		}
		for n := range holders {
			acquire(0x0101010101010101*uint64(n), 0x01010101)
		}
		value, _ := server.Must(t, "HGET", store.Key(subject), string(field(counter))).(string)
		if len(value) != stateSize+holders*holderSize {
			t.Fatalf("%d holders take %d bytes", holders, len(value))
		}
		for at := range len(value) - 7 {
			acquire(binary.LittleEndian.Uint64([]byte(value[at:])), 1)
		}
		for id := range known {
			acquire(id, 1)
		}
	}
}

// TestSlotsKeepOtherCounters checks that a concurrency limit shares its subject's key with other counters and extends its TTL.
func TestSlotsKeepOtherCounters(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	store := open(t, standalone(server))
	subject := headgate.SubjectOf("alice")
	slots := headgate.Limit{Algorithm: headgate.Concurrency, Count: 3, Window: time.Hour}
	charges := []headgate.Charge{
		{Subject: subject, Counter: 1, Limit: headgate.PerSecond(1), Cost: 1},
		{Subject: subject, Counter: 2, Limit: slots, Cost: 1, Holder: 7, Seq: 1},
	}
	if err := store.Take(t.Context(), charges, make([]headgate.Result, 2)); err != nil {
		t.Fatal(err)
	}
	ttl, _ := server.Must(t, "PTTL", store.Key(subject)).(int64)
	fields, _ := server.Must(t, "HLEN", store.Key(subject)).(int64)
	if fields != 2 || ttl < (time.Hour-time.Minute).Milliseconds() || ttl > (time.Hour+time.Minute).Milliseconds() {
		t.Errorf("%d fields expire after %d ms", fields, ttl)
	}
}
