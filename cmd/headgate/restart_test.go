package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	loadCallers = 32
	callEvery   = 10 * time.Millisecond // per caller
	// responseTimeout is longer than a busy machine stalls, so that a stall alone loses no calls.
	responseTimeout = 500 * time.Millisecond
	// detection is the longest time in which clients detect that a server has stopped, and hangDetection that it hangs.
	detection     = 100 * time.Millisecond
	hangDetection = responseTimeout + 2*detection
)

const (
	few  = 2_000
	many = 1_000_000
)

var restartRules = fmt.Sprintf(`
rules:
  - {id: few, by: [], limit: %d/hour, algorithm: fixed_window, strict: true}
  - {id: many, by: [], limit: %d/hour, algorithm: fixed_window, strict: true}
  - {id: held, by: [], limit: %[2]d/hour, algorithm: fixed_window, strict: true}
  - {id: leased, by: [], limit: %[3]d/hour, algorithm: fixed_window}
`, few, many, leasedLimit)

// node is a server process that can be restarted on the same address.
type node struct {
	*testServer
	binary, config, address string
	process                 *os.Process
}

// start starts the node and returns when it listens. It retries while another process holds the port.
func (n *node) start(t *testing.T) {
	t.Helper()
	eventually(t, "a start at "+n.address, func() bool {
		r := &testServer{t: t, done: make(chan struct{})}
		cmd := exec.Command(n.binary, "serve", "--config", n.config)
		cmd.Stdout, cmd.Stderr = &r.out, &r.log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(r.done)
			r.err = cmd.Wait()
		}()
		n.testServer, n.process = r, cmd.Process
		taken := false
		eventually(t, "an address", func() bool {
			_, up := r.log.find(func(l logLine) bool { return l.Msg == "listening" && l.Listener == "ops" })
			taken = strings.Contains(r.log.String(), "is in use by another program")
			return up || taken || r.ended()
		})
		return !taken
	})
	n.addressOf("ops") // fails if the process has exited
	if !strings.Contains(n.log.String(), redisConnected) {
		t.Errorf("the node serves checks before Redis is connected:\n%s", n.log.String())
	}
}

func (r *testServer) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (n *node) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := n.process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (n *node) kill() {
	n.process.Kill()
	<-n.done
}

// stop sends SIGTERM, as a deployment does, and checks that the node stops in time without cutting connections.
func (n *node) stop(t *testing.T) {
	t.Helper()
	began := time.Now()
	n.signal(t, syscall.SIGTERM)
	<-n.done
	line, ok := n.log.find(func(l logLine) bool { return l.Msg == "stopped" })
	if elapsed := time.Since(began); n.err != nil || !ok || line.TimedOut || elapsed > 3*time.Second { // one second is reserved for load balancers to notice
		t.Errorf("%s stopped after %v with %v\n%s", n.address, elapsed, n.err, n.log.String())
	}
}

var decisionsTotal = regexp.MustCompile(`(?m)^headgate_decisions_total\{call="check".* (\d+)$`)

// decisions returns the number of checks that the process has decided.
func (n *node) decisions(t *testing.T) (sum int) {
	t.Helper()
	_, metrics := send(t, "GET", "http://"+n.addressOf("ops")+"/metrics", "")
	for _, line := range decisionsTotal.FindAllStringSubmatch(metrics, -1) {
		count, err := strconv.Atoi(line[1])
		if err != nil {
			t.Fatal(err)
		}
		sum += count
	}
	return sum
}

// waitForLoad returns when the load reaches the node.
func (n *node) waitForLoad(t *testing.T) {
	t.Helper()
	enough := n.decisions(t) + 200
	eventually(t, "load on "+n.address, func() bool { return n.decisions(t) >= enough })
}

// newNodes starts two nodes on one Redis. Their ports are below the ephemeral range, so that no outgoing connection takes a port while
// its node is down.
func newNodes(t *testing.T, binary string) []*node {
	t.Helper()
	redis := testenv.Start(t, testenv.Redis)
	nodes := make([]*node, 2)
	for i := range nodes {
		n := &node{binary: binary}
		eventually(t, "a free port", func() bool {
			n.address = fmt.Sprintf("127.0.0.1:%d", 10_000+rand.N(20_000))
			l, err := net.Listen("tcp", n.address)
			if err == nil {
				l.Close()
			}
			return err == nil
		})
		dir := t.TempDir()
		n.config = filepath.Join(dir, "config.yaml")
		writeFile(t, filepath.Join(dir, "rules.yaml"), restartRules)
		writeFile(t, n.config, "listen: {http: off, admin: off, ops: 127.0.0.1:0, grpc: \""+n.address+"\"}\n"+
			"redis: {address: redis://"+redis.Addr()+"}\nrules: rules.yaml\n")
		n.start(t)
		t.Cleanup(func() { n.kill() })
		nodes[i] = n
	}
	return nodes
}

func newClient(t *testing.T, policy headgate.OnStoreFailure, nodes ...*node) *client.Client {
	t.Helper()
	o := client.Options{OnFailure: policy, Timeout: responseTimeout, Log: slog.New(slog.DiscardHandler)}
	for _, n := range nodes {
		o.Addresses = append(o.Addresses, n.address)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// decidedByClient reports whether the client decided because no server responded.
func decidedByClient(d *headgate.Decision) bool {
	return d.Path == headgate.PathFailed && d.Version == ""
}

// charged returns how many units of a rule's limit are charged or held in Redis.
func charged(t *testing.T, c *client.Client, rule string) (units int64) {
	t.Helper()
	eventually(t, "a response from Redis", func() bool {
		d, err := c.Peek(t.Context(), headgate.Request{Rule: rule})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Limits) == 0 {
			t.Fatalf("%+v", d)
		}
		units = d.Limits[0].Limit.Count - d.Limits[0].Remaining
		return d.Path == headgate.PathStore
	})
	return units
}

// load is a set of callers that share a client, with the decisions they received.
type load struct {
	client *client.Client
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	calls   map[string]int64 // by rule
	granted map[string]int64 // units that were certainly charged
	doubt   map[string]int64 // units that may have been charged
	late    int64            // decisions that a server made without a timely response of Redis
	lost    []time.Time      // start times of the calls without a response
}

func newLoad(t *testing.T, c *client.Client) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{
		client: c, stop: stop,
		calls: map[string]int64{}, granted: map[string]int64{}, doubt: map[string]int64{},
	}
	t.Cleanup(l.ended.Wait)
	for i := range loadCallers {
		l.ended.Go(func() {
			ticker := time.NewTicker(callEvery)
			defer ticker.Stop()
			for n := i; ; n++ {
				switch {
				case i == 0:
					l.reserve(t)
				case n%2 == 0:
					l.check(t, "few")
				default:
					l.check(t, "many")
				}
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return l
}

func (l *load) check(t *testing.T, rule string) {
	began := time.Now()
	d, err := l.client.Check(t.Context(), headgate.Request{Rule: rule})
	l.note(t, rule, began, 1, 1, d, err)
}

// reserve holds 5 units and commits 2 of them.
func (l *load) reserve(t *testing.T) {
	began := time.Now()
	r, err := l.client.Reserve(t.Context(), headgate.Request{Rule: "held", Cost: 5}, 0)
	if !l.note(t, "held", began, 0, 5, r.Decision, err) {
		return
	}
	began = time.Now()
	d, err := l.client.Commit(t.Context(), r.Token, headgate.Request{Cost: 2})
	if errors.Is(err, headgate.ErrUnavailable) {
		err = nil // the decision reports it as well
	}
	// A commit without Redis is charged later, and the held units are released only when the reservation expires.
	l.note(t, "held", began, 2, 5+2, d, err)
}

// note records a decision: units are charged if it was allowed; doubtful units may have been charged if the outcome is unknown.
func (l *load) note(
	t *testing.T, rule string, began time.Time, units, doubtful int64, d headgate.Decision, err error,
) (allowed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[rule]++
	switch {
	case err != nil:
		t.Errorf("%s: %v", rule, err)
	case d.Path == headgate.PathStore && d.Allowed:
		l.granted[rule] += units
		return true
	case d.Path == headgate.PathStore && rule == "few": // denied
	case decidedByClient(&d):
		l.lost = append(l.lost, began)
		l.doubt[rule] += doubtful
	case d.Path == headgate.PathLocal || d.Path == headgate.PathFailed: // a commit has no local fallback share
		l.late++
		l.doubt[rule] += doubtful
	default:
		t.Errorf("%s: %+v", rule, d)
	}
	return false
}

func (l *load) total() (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.calls {
		sum += n
	}
	return sum
}

// end stops the callers and compares the counters with the granted units.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.ended.Wait()
	for _, rule := range []string{"few", "many", "held"} {
		used := charged(t, l.client, rule)
		if certain := l.granted[rule]; used < certain || used > certain+l.doubt[rule] {
			t.Errorf("%s: %d units are charged, but %d were granted and %d are in doubt", rule, used, certain, l.doubt[rule])
		}
	}
	if maxGranted := l.granted["few"] + l.doubt["few"]; l.calls["few"] > few && (l.granted["few"] > few || maxGranted < few) {
		t.Errorf("few: %d to %d granted, not %d", l.granted["few"], maxGranted, few)
	}
	t.Logf("calls %v, granted %v, in doubt %v; %d without a response, %d without Redis",
		l.calls, l.granted, l.doubt, len(l.lost), l.late)
}

// TestRestart runs its subtests one at a time, because servers wait only milliseconds for Redis.
func TestRestart(t *testing.T) {
	binary := testenv.BuildHeadgate(t)
	for _, c := range []struct {
		name string
		test func(t *testing.T, nodes []*node)
	}{
		{"rolling", testRollingRestart},
		{"killed", testKilled},
		{"hanging", testHanging},
		{"none left", testNoneLeft},
		{"reservation", testReservationSurvives},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newNodes(t, binary)) })
	}
}

// testRollingRestart restarts the servers one after the other. No call may be lost.
func testRollingRestart(t *testing.T, nodes []*node) {
	l := newLoad(t, newClient(t, headgate.FailAllow, nodes...))
	for range 2 {
		for _, n := range nodes {
			n.waitForLoad(t)
			n.stop(t)
			n.start(t)
			n.waitForLoad(t)
		}
	}
	l.end(t)
	if len(l.lost) > 0 {
		t.Errorf("%d of %d calls got no response", len(l.lost), l.total())
	}
	if l.calls["few"] <= few {
		t.Errorf("%d calls are too few to be denied", l.calls["few"])
	}
}

// testKilled kills a server. Only the calls in flight on it may be lost.
func testKilled(t *testing.T, nodes []*node) {
	l := newLoad(t, newClient(t, headgate.FailAllow, nodes...))
	nodes[0].waitForLoad(t)
	nodes[0].kill()
	killed := time.Now()
	nodes[1].waitForLoad(t)
	nodes[0].start(t)
	nodes[0].waitForLoad(t)
	l.end(t)
	l.lostBefore(t, killed.Add(detection), loadCallers)
}

// testHanging suspends a server. Its clients must detect that within hangDetection.
func testHanging(t *testing.T, nodes []*node) {
	l := newLoad(t, newClient(t, headgate.FailAllow, nodes...))
	nodes[0].waitForLoad(t)
	nodes[0].signal(t, syscall.SIGSTOP)
	stopped := time.Now()
	eventually(t, "hang detection", func() bool { return time.Since(stopped) > hangDetection+detection })
	nodes[1].waitForLoad(t)
	nodes[0].signal(t, syscall.SIGCONT)
	nodes[0].waitForLoad(t)
	l.end(t)
	l.lostBefore(t, stopped.Add(hangDetection), 2*loadCallers) // some callers may try it once more
}

// lostBefore checks that at most maxLost calls got no response, and that all of them began before the given time.
func (l *load) lostBefore(t *testing.T, then time.Time, maxLost int) {
	t.Helper()
	if len(l.lost) > maxLost {
		t.Errorf("%d calls were lost, not at most %d", len(l.lost), maxLost)
	}
	for _, began := range l.lost {
		if began.After(then) {
			t.Errorf("a call that began %v after the deadline was lost", began.Sub(then))
		}
	}
}

// testNoneLeft kills all servers. The client's policy must decide immediately, until a server is started again.
func testNoneLeft(t *testing.T, nodes []*node) {
	clients := map[headgate.OnStoreFailure]*client.Client{
		headgate.FailAllow: newClient(t, headgate.FailAllow, nodes...),
		headgate.FailDeny:  newClient(t, headgate.FailDeny, nodes...),
	}
	check := func(policy headgate.OnStoreFailure) headgate.Decision {
		d, err := clients[policy].Check(t.Context(), headgate.Request{Rule: "many"})
		if err != nil {
			t.Error(err)
		}
		return d
	}
	waitForStore := func(when string) {
		for policy := range clients {
			eventually(t, when, func() bool { d := check(policy); return d.Path == headgate.PathStore && d.Allowed })
		}
	}
	waitForStore("a response")
	for _, n := range nodes {
		n.kill()
	}
	killed, immediate := time.Now(), 0
	for time.Since(killed) < 5*detection {
		if time.Since(killed) > detection {
			immediate++
		}
		for policy := range clients {
			if d := check(policy); !decidedByClient(&d) || d.Allowed != (policy == headgate.FailAllow) {
				t.Fatalf("%v: %+v", policy, d)
			}
		}
	}
	if immediate < 100 {
		t.Errorf("%d decisions in %v: clients wait for stopped servers", immediate, 4*detection)
	}
	nodes[1].start(t)
	waitForStore("a response after the restart")
}

// testReservationSurvives reserves on one server, kills it, and commits on the other.
func testReservationSurvives(t *testing.T, nodes []*node) {
	first, second := newClient(t, headgate.FailDeny, nodes[0]), newClient(t, headgate.FailDeny, nodes[1])
	r, err := first.Reserve(t.Context(), headgate.Request{Rule: "held", Cost: 50}, 0)
	if err != nil || r.Decision.Path != headgate.PathStore || !r.Decision.Allowed {
		t.Fatalf("%+v, %v", r.Decision, err)
	}
	nodes[0].kill()
	if units := charged(t, second, "held"); units != 50 {
		t.Errorf("%d units are held, not 50", units)
	}
	d, err := second.Commit(t.Context(), r.Token, headgate.Request{Cost: 7})
	if err != nil || d.Path != headgate.PathStore {
		t.Errorf("%+v, %v", d, err)
	}
	if units := charged(t, second, "held"); units != 7 {
		t.Errorf("%d units are charged, not 7", units)
	}
}
