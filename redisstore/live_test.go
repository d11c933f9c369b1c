package redisstore

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// Tests of server failures under load. Each test compares the counters with the callers' results at the end: see load.end.

func TestScriptFlushUnderLoad(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	l := startLoad(t, open(t, standalone(server)), subjects(3), 16, 2*time.Second)
	for range 20 {
		time.Sleep(20 * time.Millisecond)
		server.Must(t, "SCRIPT", "FLUSH")
	}
	l.end(t, 0)
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d callers saw an error: %v", n, l.lastError)
	}
}

func TestPauseUnderLoad(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	server := startServer(t)
	l := startLoad(t, open(t, standalone(server)), subjects(3), 16, 100*time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	server.Pause()
	time.Sleep(time.Second)
	server.Resume()
	l.recovers(t, 300*time.Millisecond, 700*time.Millisecond)
	l.end(t, 0)
	if l.failed.Load() == 0 {
		t.Error("no caller failed while the server was paused")
	}
}

func TestRestartUnderLoad(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	server := startServer(t)
	l := startLoad(t, open(t, standalone(server)), subjects(3), 16, 200*time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	before := l.admitted[0].Load() + l.admitted[1].Load() + l.admitted[2].Load()
	server.Kill()
	time.Sleep(300 * time.Millisecond)
	server.Restart(t)
	l.recovers(t, 300*time.Millisecond, 700*time.Millisecond)
	l.end(t, before+100) // without persistence, earlier counts are lost
}

// TestPrimaryKilledUnderLoad kills a primary of a Cluster. Charges on other shards do not fail. Those on its own shard
// succeed again once the promoted replica accepts writes.
func TestPrimaryKilledUnderLoad(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	// By default a Cluster rejects all commands while any slot is not served.
	c := startCluster(t, "--cluster-require-full-coverage", "no")
	store := open(t, cluster(c))
	all := subjects(12)
	victim := c.PrimaryOf(t, int(store.slot(all[0])))
	onVictim, onOthers := all[:0:0], all[:0:0]
	for _, s := range all {
		if store.Shard(s) == store.Shard(all[0]) {
			onVictim = append(onVictim, s)
		} else {
			onOthers = append(onOthers, s)
		}
	}
	l := startLoad(t, store, onVictim, 8, 200*time.Millisecond)
	others := startLoad(t, store, onOthers, 8, 2*time.Second)
	time.Sleep(500 * time.Millisecond)
	shard := store.Shard(all[0])
	victim.Kill()
	awaitWrite(t, c, int(store.slot(all[0])))
	l.recovers(t, 500*time.Millisecond, 2500*time.Millisecond)
	l.end(t, 1000) // asynchronous replication may lose what was acknowledged last
	others.end(t, 0)
	if l.failed.Load() == 0 {
		t.Error("no caller failed after the primary was killed")
	}
	if n := others.failed.Load(); n > 0 {
		t.Errorf("%d callers of other shards saw an error: %v", n, others.lastError)
	}
	if store.heartbeat(t.Context()); store.Shard(all[0]) != shard {
		t.Errorf("shard %d became %d in a failover", shard, store.Shard(all[0]))
	}
	t.Logf("errors on the dead shard: %d, the last: %v", l.failed.Load(), l.lastError)
}

// awaitWrite waits until a slot accepts writes again, as observed by an independent client.
func awaitWrite(t testing.TB, c *testenv.Cluster, slot int) {
	t.Helper()
	probe := keyInSlot(slot)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, s := range c.Servers() {
			if _, err := s.Do("SET", probe, "1", "PX", "1000"); err == nil {
				return
			}
		}
	}
	t.Fatalf("slot %d accepts no writes", slot)
}

func TestSentinelFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	s := startSentinels(t)
	l := startLoad(t, open(t, sentinels(s)), subjects(3), 16, 200*time.Millisecond)
	time.Sleep(300 * time.Millisecond)
	s.Primary(t).Kill()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := s.Primary(t).Do("SET", "probe", "1", "PX", "1000"); err == nil {
			break
		}
		if time.Since(start) > 20*time.Second {
			t.Fatal("no primary accepts writes")
		}
	}
	// The client's sentinel may be one that learns of the failover from the leader, every two seconds.
	l.recovers(t, 2500*time.Millisecond, 1500*time.Millisecond)
	l.end(t, 1000)
}

// TestReshardUnderLoad moves the slots of all subjects to another primary and back. No caller gets an error, and the counters
// move with their slots.
func TestReshardUnderLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	store := open(t, cluster(c))
	l := startLoad(t, store, subjects(4), 8, 2*time.Second)
	primaries := c.Primaries(t)
	for round := range 2 {
		for _, s := range l.subjects {
			slot := int(store.slot(s))
			from := c.PrimaryOf(t, slot)
			to := primaries[round%len(primaries)]
			if from.Addr() == to.Addr() {
				to = primaries[(round+1)%len(primaries)]
			}
			c.MoveSlots(t, from, to, slot)
		}
	}
	l.end(t, 0)
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d callers saw an error: %v", n, l.lastError)
	}
}

// TestSlotHalfMoved charges two subjects of one slot while one of them has already been moved: the server answers TRYAGAIN,
// and the store makes one call per subject.
func TestSlotHalfMoved(t *testing.T) {
	t.Parallel()
	c := testenv.StartCluster(t, testenv.Redis)
	store := open(t, cluster(c))
	a, b := twoInOneSlot(store)
	charges := []headgate.Charge{
		{Subject: a, Counter: unlimitedCounter, Limit: unlimited, Cost: 1},
		{Subject: b, Counter: unlimitedCounter, Limit: unlimited, Cost: 1},
	}
	take := func(want ...int64) []headgate.Result {
		t.Helper()
		results := make([]headgate.Result, len(charges))
		if err := store.Take(t.Context(), charges, results); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if used := charges[i].Limit.Count - results[i].Remaining; used != want[i] {
				t.Errorf("subject %d: %d used, want %d", i, used, want[i])
			}
		}
		return results
	}
	take(1, 1)
	slot := int(store.slot(a))
	from := c.PrimaryOf(t, slot)
	to := c.Primaries(t)[0]
	if to.Addr() == from.Addr() {
		to = c.Primaries(t)[1]
	}
	fromID, _ := from.Must(t, "CLUSTER", "MYID").(string)
	toID, _ := to.Must(t, "CLUSTER", "MYID").(string)
	number := strconv.Itoa(slot)
	to.Must(t, "CLUSTER", "SETSLOT", number, "IMPORTING", fromID)
	from.Must(t, "CLUSTER", "SETSLOT", number, "MIGRATING", toID)
	host, port, _ := strings.Cut(to.Addr(), ":")
	from.Must(t, "MIGRATE", host, port, store.Key(a), "0", "5000")

	take(2, 2)
	charges[1].Limit.Count = 2 // the second denies; the first, decided by another server, is refunded
	if r := take(2, 2); !r[0].Allowed || r[0].Granted != 0 || r[1].Allowed {
		t.Errorf("%+v", r)
	}
	charges[1].Limit.Count = 100
	take(3, 3)
}

// twoInOneSlot returns two subjects in the same slot.
func twoInOneSlot(s *Store) (a, b headgate.Subject) {
	seen := map[uint16]headgate.Subject{}
	for i := 0; ; i++ {
		b = headgate.SubjectOf("pair", strconv.Itoa(i))
		if a, ok := seen[s.slot(b)]; ok {
			return a, b
		}
		seen[s.slot(b)] = b
	}
}

// TestRedisStartsLater opens a store before its Redis runs. Charges fail at once, and succeed as soon as Redis answers.
func TestRedisStartsLater(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	server.Kill()
	start := time.Now()
	s, err := Open(standalone(server))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 100 {
		if _, err := headgate.Take(t.Context(), s, headgate.PerSecond(1), "a", "b"); !errors.Is(err, headgate.ErrUnavailable) || errors.Is(err, headgate.ErrUnanswered) {
			t.Fatalf("%v", err)
		}
	}
	if elapsed := time.Since(start); elapsed > time.Second {
		t.Errorf("opening a store and 100 charges took %s without Redis", elapsed)
	}
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), server.Addr()) {
		t.Errorf("%v", err)
	}
	server.Restart(t)
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if r, err := headgate.Take(t.Context(), s, headgate.PerSecond(1000), "a", "b"); err == nil && r.Allowed && r.Nodes == 1 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("5 s after Redis came back: %v", err)
		}
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}
