package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// clock is the wall clock of a faked server: the real clock plus an offset, which libfaketime reads from a file at every call.
type clock struct {
	library string
	file    string
	offset  time.Duration
}

// StartFaked starts a server under libfaketime, so that StepClock can step its clock.
//
// libfaketime and a shared jemalloc deadlock on each other, so such a server uses libc's malloc, and its UsedMemory differs from that
// of a real server. Debian's Valkey requires jemalloc and does not start this way.
func StartFaked(t testing.TB, e Engine, extra ...string) *Server {
	t.Helper()
	Long(t)
	libraries, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(libraries) == 0 {
		missing(t, "libfaketime")
	}
	s := newServer(t, e, dataArgs(extra))
	s.clock = &clock{library: libraries[0], file: filepath.Join(s.dir, "clock")}
	NoError(t, s.clock.write())
	startAll(t, s)
	return s
}

// StepClock steps the clock of a faked server, backwards if by is negative, and returns once TIME reports it. Steps accumulate and
// survive a Restart. Only the wall clock is stepped; the server's timers use the monotonic clock.
func (s *Server) StepClock(t testing.TB, by time.Duration) {
	t.Helper()
	if s.clock == nil {
		t.Fatalf("%s: StepClock needs StartFaked", s.Addr())
	}
	s.clock.offset += by
	NoError(t, s.clock.write())
	wait(t, "stepped clock", func() error {
		const slack = 5 * time.Millisecond
		earliest := time.Now().Add(s.clock.offset - slack)
		now, err := s.now()
		if err != nil {
			return err
		}
		latest := time.Now().Add(s.clock.offset + slack)
		if now.Before(earliest) || now.After(latest) {
			return fmt.Errorf("TIME is %v, want about %v", now, latest)
		}
		return nil
	})
}

// now returns the server's time.
func (s *Server) now() (time.Time, error) {
	reply, err := s.Do("TIME")
	if err != nil {
		return time.Time{}, err
	}
	var seconds, micros int64
	if _, err := fmt.Sscanf(fmt.Sprint(reply), "[%d %d]", &seconds, &micros); err != nil {
		return time.Time{}, fmt.Errorf("TIME is %v: %w", reply, err)
	}
	return time.Unix(seconds, micros*1000), nil
}

// env returns the environment for libfaketime. It loads libc's malloc right after libfaketime and before jemalloc: the first
// allocation of jemalloc reads the time, and faketime allocates to read the time.
func (c *clock) env() []string {
	return []string{
		"LD_PRELOAD=" + c.library + ":libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
		"DONT_FAKE_MONOTONIC=1", // its name before 0.9.10
	}
}

// write replaces the file atomically, because the server may be reading it.
func (c *clock) write() error {
	next := c.file + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.6fs\n", c.offset.Seconds()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, c.file)
}

// sweep removes the shared memory that a killed libfaketime leaves behind.
func (c *clock) sweep(pid int) {
	_ = os.Remove(fmt.Sprintf("/dev/shm/faketime_shm_%d", pid))
	_ = os.Remove(fmt.Sprintf("/dev/shm/sem.faketime_sem_%d", pid))
}
