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
	callEvery   = 10 * time.Millisecond // of each of them
	// answerWithin is longer than a busy machine stands still, so that what is lost is not lost for that.
	answerWithin = 500 * time.Millisecond
	// moment is how long clients may take to see that a server is gone, and hangMoment that it hangs.
	moment     = 100 * time.Millisecond
	hangMoment = answerWithin + 2*moment
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
`, few, many)

// node is a process that serves checks, and can be started again where it was.
type node struct {
	*running
	binary, config, address string
	process                 *os.Process
}

// start returns when the node listens. Somebody may have taken its port meanwhile.
func (n *node) start(t *testing.T) {
	t.Helper()
	eventually(t, "a start at "+n.address, func() bool {
		r := &running{t: t, done: make(chan struct{})}
		cmd := exec.Command(n.binary, "serve", "--config", n.config)
		cmd.Stdout, cmd.Stderr = &r.out, &r.log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(r.done)
			r.err = cmd.Wait()
		}()
		n.running, n.process = r, cmd.Process
		taken := false
		eventually(t, "an address", func() bool {
			_, up := r.log.find(func(l logLine) bool { return l.Msg == "listening" && l.Listener == "ops" })
			taken = strings.Contains(r.log.String(), "is in use by another program")
			return up || taken || r.ended()
		})
		return !taken
	})
	n.at("ops") // fails if the process has ended
	if !strings.Contains(n.log.String(), "Redis answers") {
		t.Errorf("it takes checks before Redis is connected:\n%s", n.log.String())
	}
}

func (r *running) ended() bool {
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

// stop is what a deployment does. Everybody must have gone elsewhere by then.
func (n *node) stop(t *testing.T) {
	t.Helper()
	began := time.Now()
	n.signal(t, syscall.SIGTERM)
	<-n.done
	line, ok := n.log.find(func(l logLine) bool { return l.Msg == "stopped" })
	if took := time.Since(began); n.err != nil || !ok || line.Cut || took > 3*time.Second { // it gives load balancers a second to notice
		t.Errorf("%s stopped after %v with %v\n%s", n.address, took, n.err, n.log.String())
	}
}

var decisionsTotal = regexp.MustCompile(`(?m)^headgate_decisions_total\{call="check".* (\d+)$`)

// decisions is how many checks the process has answered.
func (n *node) decisions(t *testing.T) (sum int) {
	t.Helper()
	_, metrics := send(t, "GET", "http://"+n.at("ops")+"/metrics", "")
	for _, line := range decisionsTotal.FindAllStringSubmatch(metrics, -1) {
		count, err := strconv.Atoi(line[1])
		if err != nil {
			t.Fatal(err)
		}
		sum += count
	}
	return sum
}

// isUsed returns when the load reaches the node.
func (n *node) isUsed(t *testing.T) {
	t.Helper()
	enough := n.decisions(t) + 200
	eventually(t, "load on "+n.address, func() bool { return n.decisions(t) >= enough })
}

// newNodes starts two on one Redis. Their ports are below those that the system gives to outgoing connections, which
// could take them while a node is down.
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
	o := client.Options{OnFailure: policy, Timeout: answerWithin, Log: slog.New(slog.DiscardHandler)}
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

// unanswered is true if the client decided itself, for want of an answer.
func unanswered(d *headgate.Decision) bool { return d.Path == headgate.PathFailed && d.Version == "" }

// charged is how many units of a rule's limit are charged or held in Redis.
func charged(t *testing.T, c *client.Client, rule string) (units int64) {
	t.Helper()
	eventually(t, "an answer from Redis", func() bool {
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

// load is callers who share a client, and what they were told.
type load struct {
	client *client.Client
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	asked   map[string]int64 // by rule
	granted map[string]int64 // units that were surely charged
	doubt   map[string]int64 // units that may have been
	late    int64            // decisions for which a server did not get an answer of Redis in time
	lost    []time.Time      // when those were asked that no server answered
}

func newLoad(t *testing.T, c *client.Client) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{
		client: c, stop: stop,
		asked: map[string]int64{}, granted: map[string]int64{}, doubt: map[string]int64{},
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

// reserve holds 5 and commits 2.
func (l *load) reserve(t *testing.T) {
	began := time.Now()
	r, err := l.client.Reserve(t.Context(), headgate.Request{Rule: "held", Cost: 5}, 0)
	if !l.note(t, "held", began, 0, 5, r.Decision, err) {
		return
	}
	began = time.Now()
	d, err := l.client.Commit(t.Context(), r.Token, headgate.Request{Cost: 2})
	if errors.Is(err, headgate.ErrUnavailable) {
		err = nil // the decision says the same
	}
	// Decided without Redis it is charged afterwards, and what was held comes back only by itself.
	l.note(t, "held", began, 2, 5+2, d, err)
}

// note counts a decision: units are charged if it was allowed, and doubtful ones perhaps if nobody can say.
func (l *load) note(
	t *testing.T, rule string, began time.Time, units, doubtful int64, d headgate.Decision, err error,
) (allowed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[rule]++
	switch {
	case err != nil:
		t.Errorf("%s: %v", rule, err)
	case d.Path == headgate.PathStore && d.Allowed:
		l.granted[rule] += units
		return true
	case d.Path == headgate.PathStore && rule == "few": // denied
	case unanswered(&d):
		l.lost = append(l.lost, began)
		l.doubt[rule] += doubtful
	case d.Path == headgate.PathLocal || d.Path == headgate.PathFailed: // a commit has no share
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
	for _, n := range l.asked {
		sum += n
	}
	return sum
}

// end stops the callers and compares the counters with what they were granted.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.ended.Wait()
	for _, rule := range []string{"few", "many", "held"} {
		used := charged(t, l.client, rule)
		if surely := l.granted[rule]; used < surely || used > surely+l.doubt[rule] {
			t.Errorf("%s: %d units are charged, but %d were granted, and %d perhaps", rule, used, surely, l.doubt[rule])
		}
	}
	if admitted := l.granted["few"] + l.doubt["few"]; l.asked["few"] > few && (l.granted["few"] > few || admitted < few) {
		t.Errorf("few: %d to %d admitted, not %d", l.granted["few"], admitted, few)
	}
	t.Logf("asked %v, granted %v, in doubt %v; %d not answered, %d without Redis",
		l.asked, l.granted, l.doubt, len(l.lost), l.late)
}

// TestRestart has one test at a time on the machine: servers wait for Redis for milliseconds only.
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

// Servers are restarted one after the other, and no caller notices.
func testRollingRestart(t *testing.T, nodes []*node) {
	l := newLoad(t, newClient(t, headgate.FailAllow, nodes...))
	for range 2 {
		for _, n := range nodes {
			n.isUsed(t)
			n.stop(t)
			n.start(t)
			n.isUsed(t)
		}
	}
	l.end(t)
	if len(l.lost) > 0 {
		t.Errorf("%d of %d calls were not answered", len(l.lost), l.total())
	}
	if l.asked["few"] <= few {
		t.Errorf("%d were asked for, which is too few to be denied", l.asked["few"])
	}
}

// What was under way on a server that dies is lost, and nothing else.
func testKilled(t *testing.T, nodes []*node) {
	l := newLoad(t, newClient(t, headgate.FailAllow, nodes...))
	nodes[0].isUsed(t)
	nodes[0].kill()
	killed := time.Now()
	nodes[1].isUsed(t)
	nodes[0].start(t)
	nodes[0].isUsed(t)
	l.end(t)
	l.lostBefore(t, killed.Add(moment), loadCallers)
}

// A server that hangs is like one that is gone, but it takes longer to see.
func testHanging(t *testing.T, nodes []*node) {
	l := newLoad(t, newClient(t, headgate.FailAllow, nodes...))
	nodes[0].isUsed(t)
	nodes[0].signal(t, syscall.SIGSTOP)
	stopped := time.Now()
	eventually(t, "the end of a moment", func() bool { return time.Since(stopped) > hangMoment+moment })
	nodes[1].isUsed(t)
	nodes[0].signal(t, syscall.SIGCONT)
	nodes[0].isUsed(t)
	l.end(t)
	l.lostBefore(t, stopped.Add(hangMoment), 2*loadCallers) // some may ask it once more
}

// lostBefore is for calls without an answer: there may be so many, and none that were asked later.
func (l *load) lostBefore(t *testing.T, then time.Time, most int) {
	t.Helper()
	if len(l.lost) > most {
		t.Errorf("%d calls were lost, not at most %d", len(l.lost), most)
	}
	for _, asked := range l.lost {
		if asked.After(then) {
			t.Errorf("a call was lost that was asked %v too late for that", asked.Sub(then))
		}
	}
}

// Without any server the client's policy decides, at once, until there is one again.
func testNoneLeft(t *testing.T, nodes []*node) {
	clients := map[headgate.OnStoreFailure]*client.Client{
		headgate.FailAllow: newClient(t, headgate.FailAllow, nodes...),
		headgate.FailDeny:  newClient(t, headgate.FailDeny, nodes...),
	}
	ask := func(policy headgate.OnStoreFailure) headgate.Decision {
		d, err := clients[policy].Check(t.Context(), headgate.Request{Rule: "many"})
		if err != nil {
			t.Error(err)
		}
		return d
	}
	answered := func(when string) {
		for policy := range clients {
			eventually(t, when, func() bool { d := ask(policy); return d.Path == headgate.PathStore && d.Allowed })
		}
	}
	answered("an answer")
	for _, n := range nodes {
		n.kill()
	}
	killed, atOnce := time.Now(), 0
	for time.Since(killed) < 5*moment {
		if time.Since(killed) > moment {
			atOnce++
		}
		for policy := range clients {
			if d := ask(policy); !unanswered(&d) || d.Allowed != (policy == headgate.FailAllow) {
				t.Fatalf("%v: %+v", policy, d)
			}
		}
	}
	if atOnce < 100 {
		t.Errorf("%d decisions in %v: somebody waits for servers that are not there", atOnce, 4*moment)
	}
	nodes[1].start(t)
	answered("an answer again")
}

// What one server has held another can commit.
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
