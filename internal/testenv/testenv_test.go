package testenv

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestDo(t *testing.T) {
	t.Parallel()
	s := Start(t, Redis, "--maxmemory", "100mb")
	for _, c := range []struct {
		args string
		want any
	}{
		{"PING", "PONG"},
		{"SET k v", "OK"},
		{"GET k", "v"},
		{"GET absent", nil},
		{"INCR n", int64(1)},
		{"MGET k absent n", []any{"v", nil, "1"}},
		{"CONFIG GET maxmemory", []any{"maxmemory", "104857600"}},
		{"CONFIG GET save", []any{"save", ""}},
		{"DEBUG SLEEP 0", "OK"},
	} {
		got, err := s.Do(strings.Fields(c.args)...)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %#v, %v; want %#v", c.args, got, err, c.want)
		}
	}
	if _, err := s.Do("INCR", "k"); err == nil || !strings.HasPrefix(err.Error(), "ERR value is not an integer") {
		t.Errorf("INCR of a word: %v", err)
	}
	if s.UsedMemory(t) < 100_000 {
		t.Errorf("UsedMemory: %d", s.UsedMemory(t))
	}
	before := s.CPU(t)
	s.Must(t, "EVAL", "for i = 1, 1e7 do end", "0")
	if used := s.CPU(t) - before; used <= 0 || used > 5*time.Second {
		t.Errorf("CPU of a loop: %v", used)
	}
}

func TestStandaloneValkey(t *testing.T) {
	t.Parallel()
	s := Start(t, Valkey)
	if got := s.Must(t, "INFO", "server").(string); !strings.Contains(got, "server_name:valkey") {
		t.Errorf("INFO server of Valkey:\n%s", got)
	}
}

func TestKillRestart(t *testing.T) {
	t.Parallel()
	s := Start(t, Redis)
	addr, pid := s.Addr(), s.PID()
	s.Must(t, "SET", "k", "v")
	s.Kill()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the killed process still exists: %v", err)
	}
	if _, err := s.Do("PING"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("PING of a killed server: %v", err)
	}
	s.Kill() // a second time, without effect
	s.Restart(t)
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("restarted at %s as %d; was at %s as %d", s.Addr(), s.PID(), addr, pid)
	}
	if got := s.Must(t, "GET", "k"); got != nil {
		t.Errorf("a restarted server still has %v", got)
	}
}

func TestPauseResume(t *testing.T) {
	t.Parallel()
	Long(t)
	s := Start(t, Redis)
	s.Pause()
	var timeout net.Error
	if _, err := s.Do("PING"); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("PING of a paused server: %v", err)
	}
	s.Resume()
	s.Must(t, "PING")
	s.Pause()
	s.Kill()
	s.Restart(t)
	s.Pause() // the cleanup must end a paused server
}

func TestStepClock(t *testing.T) {
	t.Parallel()
	s := StartFaked(t, Redis)
	offset := func() time.Duration {
		now, err := s.now()
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(now).Round(time.Second)
	}
	pttl := func(key string) time.Duration {
		ms := s.Must(t, "PTTL", key).(int64)
		return time.Duration(ms) * time.Millisecond
	}
	s.Must(t, "SET", "long", "v", "PX", "90000")
	s.Must(t, "SET", "short", "v", "PX", "20000")
	s.StepClock(t, 30*time.Second)
	if got := offset(); got != 30*time.Second {
		t.Errorf("offset after +30s: %v", got)
	}
	if got := s.Must(t, "GET", "short"); got != nil {
		t.Errorf("a key of 20 s after 30 s: %v", got)
	}
	if got := pttl("long"); got > time.Minute || got < 50*time.Second {
		t.Errorf("a key of 90 s after 30 s has %v left", got)
	}
	s.StepClock(t, -time.Minute)
	if got := offset(); got != -30*time.Second {
		t.Errorf("offset after -60s: %v", got)
	}
	if got := pttl("long"); got > 2*time.Minute || got < 110*time.Second {
		t.Errorf("a key of 90 s has %v left 30 s before it was set", got)
	}
	s.Kill()
	left := fmt.Sprintf("/dev/shm/sem.faketime_sem_%d", s.PID())
	if _, err := os.Stat(left); err == nil {
		t.Errorf("%s was not removed", left)
	}
	s.Restart(t)
	if got := offset(); got != -30*time.Second {
		t.Errorf("offset after a restart: %v", got)
	}
	s.StepClock(t, 30*time.Second+250*time.Millisecond)
	now, err := s.now()
	if got := time.Until(now); err != nil || got > 250*time.Millisecond || got < 0 {
		t.Errorf("offset after a step of a quarter second: %v, %v", got, err)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	first := Start(t, Redis)
	second := newServer(t, Redis, dataArgs(nil))
	second.port = first.port
	if err := second.run(); !errors.Is(err, errPortTaken) {
		t.Errorf("start on a taken port: %v", err)
	}
}

func TestSentinels(t *testing.T) {
	t.Parallel()
	s := StartSentinels(t, Redis)
	if len(s.Addrs()) != 3 || len(s.Servers()) != 3 {
		t.Fatalf("%d sentinels, %d servers", len(s.Addrs()), len(s.Servers()))
	}
	first := s.Primary(t)
	s.Failover(t)
	second := s.Primary(t)
	if second == first {
		t.Fatal("the primary is the same after a failover")
	}
	second.Must(t, "SET", "k", "v")

	// The role set by Sentinel survives a restart.
	second.Kill()
	second.Restart(t)
	role := second.Must(t, "ROLE").([]any)
	if role[0] != "master" {
		t.Errorf("the promoted server restarts as %v", role)
	}
}

// TestSentinelsDeath tests the failover after the death of a primary.
func TestSentinelsDeath(t *testing.T) {
	t.Parallel()
	s := StartSentinels(t, Redis)
	first := s.Primary(t)
	first.Kill()
	wait(t, "failover after a death", func() error { return s.promoted(first) })
	first.Restart(t)
	wait(t, "return as a replica", func() error { return first.follows(s.Primary(t)) })
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Redis)
	if n := len(c.Primaries(t)); n != 3 || len(c.Addrs()) != 6 || len(c.Servers()) != 6 {
		t.Fatalf("%d primaries, %d addresses", n, len(c.Addrs()))
	}
	slot := Slot("k")
	first := c.PrimaryOf(t, slot)
	first.Must(t, "SET", "k", "v")

	c.Failover(t, slot)
	second := c.PrimaryOf(t, slot)
	if second == first {
		t.Fatal("the primary is the same after a failover")
	}
	if got := second.Must(t, "GET", "k"); got != "v" {
		t.Errorf("the key is %v after a graceful failover", got)
	}
	checkElection(t, second)
	c.Failover(t, slot)

	// The former primary must win a new election.
	primary := c.PrimaryOf(t, slot)
	primary.Kill()
	if c.PrimaryOf(t, slot) == primary {
		t.Error("a dead server is the primary")
	}
	c.WaitOK(t)
	primary.Restart(t)
	c.WaitOK(t)
	if len(c.Primaries(t)) != 3 {
		t.Errorf("%d primaries after a restart", len(c.Primaries(t)))
	}
}

func TestMoveSlots(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Redis, "--cluster-node-timeout", "1500")
	slot := Slot("{tag}")
	from := c.PrimaryOf(t, slot)
	if got := from.Must(t, "CONFIG", "GET", "cluster-node-timeout"); fmt.Sprint(got) != "[cluster-node-timeout 1500]" {
		t.Errorf("extra arguments: %v", got)
	}
	primaries := c.Primaries(t)
	to := primaries[(slices.Index(primaries, from)+1)%len(primaries)]
	const keys = 250
	for i := range keys {
		from.Must(t, "SET", "{tag}:"+strconv.Itoa(i), strconv.Itoa(i), "PX", "600000")
	}
	next := (slot + 1) % slotCount
	if c.PrimaryOf(t, next) != from {
		next = slot - 1
	}

	c.MoveSlots(t, from, to, slot, next)
	for _, n := range []int{slot, next} {
		if c.PrimaryOf(t, n) != to {
			t.Errorf("slot %d is still at the old primary", n)
		}
	}
	if _, err := from.Do("GET", "{tag}:1"); err == nil || !strings.HasPrefix(err.Error(), "MOVED") {
		t.Errorf("GET at the old primary: %v", err)
	}
	for i := range keys {
		if got := to.Must(t, "GET", "{tag}:"+strconv.Itoa(i)); got != strconv.Itoa(i) {
			t.Fatalf("key %d is %v at the new primary", i, got)
		}
	}
	c.MoveSlots(t, to, from, slot)
	if n := from.Must(t, "CLUSTER", "COUNTKEYSINSLOT", strconv.Itoa(slot)); n != int64(keys) {
		t.Errorf("%v keys moved back", n)
	}
}

func TestClusterValkey(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Valkey)
	c.Failover(t, 0)
	primaries := c.Primaries(t)
	checkElection(t, primaries[0])
	c.MoveSlots(t, primaries[0], primaries[1], 0, 1, 2)
}

// checkElection fails the test unless lastElection finds an election in the log.
func checkElection(t *testing.T, winner *Server) {
	t.Helper()
	won, err := winner.lastElection()
	if ago := time.Since(won); err != nil || ago < 0 || ago > time.Minute {
		t.Errorf("last election of the new primary: %v, %v", won, err)
	}
}

func TestSlot(t *testing.T) {
	t.Parallel()
	s := Start(t, Redis, "--cluster-enabled", "yes")
	for _, key := range []string{"", "k", "123456789", "{a}b", "x{a}b{c}", "{}b", "{b", "}{a}", "a{{b}}", "\xff\x00"} {
		if want := s.Must(t, "CLUSTER", "KEYSLOT", key); int64(Slot(key)) != want {
			t.Errorf("Slot(%q) = %d, want %v as on the server", key, Slot(key), want)
		}
	}
}
