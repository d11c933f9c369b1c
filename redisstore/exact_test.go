package redisstore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestMain runs a job instead of the tests if worker started this process.
func TestMain(m *testing.M) {
	if job := os.Getenv("HEADGATE_TEST_JOB"); job != "" {
		if err := work(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work runs a job given as "name address callers" in its own process, and prints the outcome.
func work(job string) error {
	var name, address string
	var callers int
	if _, err := fmt.Sscan(job, &name, &address, &callers); err != nil {
		return err
	}
	store, err := Open(address)
	if err != nil {
		return err
	}
	switch name {
	case "exact":
		defer store.Close()
		return workExact(store, callers)
	default:
		return workForever(store, callers)
	}
}

// worker starts this test binary on a job in another process.
func worker(t testing.TB, name, address string, callers int) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this very binary
	cmd.Env = append(os.Environ(), fmt.Sprintf("HEADGATE_TEST_JOB=%s %s %d", name, address, callers))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

const exactly = 1000

var exactLimits = []headgate.Limit{
	{Algorithm: headgate.TokenBucket, Count: exactly, Window: 300 * 24 * time.Hour},
	{Algorithm: headgate.FixedWindow, Count: exactly, Window: 24 * time.Hour},
	{Algorithm: headgate.SlidingWindow, Count: exactly, Window: 24 * time.Hour},
	{Algorithm: headgate.SlidingLog, Count: exactly, Window: 24 * time.Hour},
}

// workExact charges each limit until it is denied, and prints how often it was admitted.
func workExact(store *Store, callers int) error {
	for _, limit := range exactLimits {
		var admitted atomic.Int64
		var failed atomic.Value
		var done sync.WaitGroup
		for range callers {
			done.Go(func() {
				for {
					r, err := headgate.Take(context.Background(), store, limit, "exact", "all")
					if err != nil {
						failed.Store(err)
						return
					}
					if !r.Allowed {
						return
					}
					admitted.Add(1)
				}
			})
		}
		done.Wait()
		if err, ok := failed.Load().(error); ok {
			return err
		}
		fmt.Println(admitted.Load())
	}
	return nil
}

// TestExact lets 100 callers in 4 processes compete for limits of 1,000.
func TestExact(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	for name, start := range map[string]func() string{
		"standalone": func() string { return standalone(startServer(t)) },
		"cluster":    func() string { return cluster(startCluster(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			address := start()
			sums := make([]int, len(exactLimits))
			var cmds []*exec.Cmd
			var outs []*bufio.Scanner
			for range 4 {
				cmd, out := worker(t, "exact", address, 25)
				cmds, outs = append(cmds, cmd), append(outs, out)
			}
			for i, out := range outs {
				for j := range sums {
					if !out.Scan() {
						t.Fatalf("a process ended early: %v", cmds[i].Wait())
					}
					n, _ := strconv.Atoi(out.Text())
					sums[j] += n
				}
				if err := cmds[i].Wait(); err != nil {
					t.Fatal(err)
				}
			}
			for j, sum := range sums {
				if sum != exactly {
					t.Errorf("%s admitted %d of %d", exactLimits[j].Algorithm, sum, exactly)
				}
			}
		})
	}
}

// conserved are the limits of three subjects that TestConservation charges together. The last is soon exhausted, so that many
// requests are denied.
var conserved = []headgate.Limit{unlimited, unlimited, {Algorithm: headgate.FixedWindow, Count: 200, Window: 24 * time.Hour}}

func conservedCharges(cost int64) []headgate.Charge {
	charges := make([]headgate.Charge, len(conserved))
	for i, limit := range conserved {
		charges[i] = headgate.Charge{
			Subject: headgate.SubjectOf("conserved", strconv.Itoa(i)), Counter: unlimitedCounter, Limit: limit, Cost: cost,
		}
	}
	return charges
}

// workForever makes random requests over the three subjects and prints each admitted cost as soon as it is known.
func workForever(store *Store, callers int) error {
	var mu sync.Mutex
	var done sync.WaitGroup
	for i := range callers {
		done.Go(func() {
			for n := 0; ; n++ {
				cost := int64(1 + (n*7+i)%3)
				charges := conservedCharges(cost)
				if (n+i)%2 == 0 {
					charges[2].Cost = 100 // will not fit for long
				}
				results := make([]headgate.Result, len(charges))
				if err := store.Take(context.Background(), charges, results); err != nil {
					continue
				}
				mu.Lock()
				fmt.Println(results[0].Granted, results[1].Granted, results[2].Granted)
				mu.Unlock()
			}
		})
	}
	done.Wait()
	return nil
}

// TestConservation makes requests over three subjects in different slots, many of which are denied after some slots have
// granted. After the last refund every counter equals the sum of what was admitted.
func TestConservation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	store := open(t, cluster(startCluster(t)))
	var admitted [3]atomic.Int64
	var denied atomic.Int64
	var done sync.WaitGroup
	for i := range 16 {
		done.Go(func() {
			for n := range 300 {
				charges := conservedCharges(int64(1 + (n+i)%3))
				charges[0].Limit.Algorithm = headgate.SlidingWindow
				charges[0].Counter = headgate.CounterOf("sliding", "", headgate.SlidingWindow)
				results := make([]headgate.Result, len(charges))
				if err := store.Take(context.Background(), charges, results); err != nil {
					t.Error(err)
					return
				}
				for j := range results {
					admitted[j].Add(results[j].Granted)
				}
				if !results[2].Allowed {
					denied.Add(1)
				}
			}
		})
	}
	done.Wait()
	charges := conservedCharges(0)
	charges[0].Limit.Algorithm = headgate.SlidingWindow
	charges[0].Counter = headgate.CounterOf("sliding", "", headgate.SlidingWindow)
	for i := range charges {
		var results [1]headgate.Result
		_ = store.Take(t.Context(), charges[i:i+1], results[:])
		if used := charges[i].Limit.Count - results[0].Remaining; used != admitted[i].Load() {
			t.Errorf("counter %d: %d recorded, %d admitted", i, used, admitted[i].Load())
		}
	}
	if denied.Load() < 1000 || admitted[0].Load() != admitted[1].Load() {
		t.Errorf("%d denied; admitted %d and %d", denied.Load(), admitted[0].Load(), admitted[1].Load())
	}
}

// TestProcessKilledMidway kills a process during such requests: at most the units in flight are recorded in addition.
func TestProcessKilledMidway(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	address := cluster(startCluster(t))
	const callers = 8
	cmd, out := worker(t, "forever", address, callers)
	var admitted [3]int64
	for n := 0; out.Scan(); n++ {
		for i, field := range strings.Fields(out.Text()) {
			units, _ := strconv.ParseInt(field, 10, 64)
			admitted[i] += units
		}
		if n == 2000 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
	store := open(t, address)
	time.Sleep(100 * time.Millisecond) // until requests in flight have arrived
	for i, c := range conservedCharges(0) {
		var results [1]headgate.Result
		if err := store.Take(t.Context(), []headgate.Charge{c}, results[:]); err != nil {
			t.Fatal(err)
		}
		used := c.Limit.Count - results[0].Remaining
		inFlight := int64(callers) * 100
		if used < admitted[i] || used > admitted[i]+inFlight {
			t.Errorf("counter %d: %d recorded, %d reported as admitted", i, used, admitted[i])
		}
		t.Logf("counter %d: %d recorded, %d reported", i, used, admitted[i])
	}
}
