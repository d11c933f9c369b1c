//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const (
	// hostileInputs is the number of inputs that each listener receives, from attackers concurrent connections.
	hostileInputs, attackers = 10_000, 8
	// slowClients is the number of additional slow clients of each listener. All of them must be disconnected after slowCut: the
	// read timeout of headers plus a margin for a busy machine.
	slowClients, slowCut = 200, 7 * time.Second
	// maxCut is the number of inputs to a listener that may be disconnected without a response, because the machine stalled for
	// longer than the read timeout of headers.
	maxCut = 10
	// guessingFrom is the address of clients that guess tokens, so that no other client is throttled for it.
	guessingFrom = "127.0.0.2"
)

// hostile is one kind of hostile input.
type hostile struct {
	name string
	// want lists the correct responses. The first must occur at least once; "none" is a connection closed without a response.
	want string
	// count is the number of inputs of this kind; 0 means an equal share of the rest.
	count int
	// do sends one input and returns all responses to it.
	do func(r *rand.Rand, address string) []string
}

func (k hostile) times(n int) hostile {
	k.count = n
	return k
}

// tally counts the responses of one listener.
type tally struct {
	mu   sync.Mutex
	seen map[string]map[string]int // by kind and response
	bad  []string
	cut  int
}

func (y *tally) note(listener string, input int, k *hostile, responses []string) {
	if len(responses) == 0 {
		responses = []string{"none"}
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.seen[k.name] == nil {
		y.seen[k.name] = map[string]int{}
	}
	y.seen[k.name]["inputs"]++
	for _, a := range responses {
		y.seen[k.name][a]++
		if a == "none" && !slices.Contains(strings.Fields(k.want), a) && y.cut < maxCut {
			y.cut++
			continue
		}
		if !slices.Contains(strings.Fields(k.want), a) && len(y.bad) < 20 {
			y.bad = append(y.bad, fmt.Sprintf("%s, input %d, %s: response %s, want one of %s", listener, input, k.name, a,
				k.want))
		}
	}
}

// attack sends all inputs to one listener and checks the responses.
func attack(t *testing.T, seed uint64, listener, address string, kinds []hostile) {
	plan := planOf(kinds)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	y := &tally{seen: map[string]map[string]int{}}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range attackers {
		workers.Go(func() {
			for i := int(next.Add(1)); i <= len(plan); i = int(next.Add(1)) {
				k := &kinds[plan[i-1]]
				y.note(listener, i, k, k.do(rand.New(rand.NewPCG(seed, uint64(i))), address))
			}
		})
	}
	workers.Wait()
	total := 0
	var lines []string
	for _, k := range kinds {
		total += y.seen[k.name]["inputs"]
		first, _, _ := strings.Cut(k.want, " ")
		if y.seen[k.name][first] == 0 {
			t.Errorf("%s, %s: response %s never occurred", listener, k.name, first)
		}
		lines = append(lines, fmt.Sprintf("  %-28s %v", k.name, y.seen[k.name]))
	}
	t.Logf("%s: %d inputs\n%s", listener, total, strings.Join(lines, "\n"))
	if total != hostileInputs {
		t.Errorf("%s: %d inputs, not %d", listener, total, hostileInputs)
	}
	for _, bad := range y.bad {
		t.Error(bad)
	}
}

// planOf returns the kind of each input, as an index into kinds.
func planOf(kinds []hostile) []int {
	var plan, rest []int
	for i, k := range kinds {
		if k.count == 0 {
			rest = append(rest, i)
		}
		for range k.count {
			plan = append(plan, i)
		}
	}
	for i := 0; len(plan) < hostileInputs; i++ {
		plan = append(plan, rest[i%len(rest)])
	}
	return plan
}

// honestTokens and hostileTokens are the numbers of tokens that callers of the admin API use in turn, so that none of them is rate
// limited.
const (
	honestTokens  = 10
	hostileTokens = 200
)

// fortress is a server under attack, with the clients of its honest callers.
type fortress struct {
	*testServer
	pid    int
	tokens []string // the tokens of honest callers come first
	client *http.Client
	conn   *grpc.ClientConn
}

func newFortress(t *testing.T) *fortress {
	t.Helper()
	redis := testenv.Start(t, testenv.Redis)
	dir, file := configure(t, "redis: {address: redis://"+redis.Addr()+"}\nadmin: {tokens_file: tokens}\n"+
		"identity: {trusted_proxies: [127.0.0.0/8]}\n",
		"rules: [{id: honest, match: {path: /honest}, by: [user], limit: 3/hour}]\n")
	f := &fortress{}
	var lines strings.Builder
	for i := range honestTokens + hostileTokens {
		token, line, err := adminapi.NewToken(fmt.Sprintf("ann%d", i))
		if err != nil {
			t.Fatal(err)
		}
		f.tokens = append(f.tokens, token)
		lines.WriteString(line + "\n")
	}
	writeFile(t, filepath.Join(dir, "tokens"), lines.String())
	f.testServer, f.pid = serveBinary(t, "--config", file)
	f.waitForLog(redisConnected)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport, Timeout: patience}
	var err error
	if f.conn, err = grpc.NewClient(f.addressOf("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.conn.Close() })
	return f
}

// serveBinary runs the server as a separate process.
func serveBinary(t *testing.T, args ...string) (r *testServer, pid int) {
	t.Helper()
	binary := testenv.BuildHeadgate(t)
	r = &testServer{t: t, done: make(chan struct{})}
	cmd := exec.Command(binary, append([]string{"serve"}, args...)...)
	cmd.Stdout, cmd.Stderr = &r.out, &r.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		r.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-r.done
	})
	return r, cmd.Process.Pid
}

// honest records the calls of an honest caller.
type honest struct {
	elapsed []time.Duration
	late    int // decisions without a timely response of the store
	errs    []error
}

// call runs one probe, which reports whether the store responded in time.
func (h *honest) call(probe func() (stored bool, err error)) {
	began := time.Now()
	stored, err := probe()
	h.elapsed = append(h.elapsed, time.Since(began))
	switch {
	case err != nil:
		h.errs = append(h.errs, err)
	case !stored:
		h.late++
	}
}

// result returns the median and the longest duration. It fails the test if a response was wrong.
func (h *honest) result(t *testing.T, name string) (median, longest time.Duration) {
	t.Helper()
	for _, err := range h.errs[:min(len(h.errs), 5)] {
		t.Errorf("%s: %v", name, err)
	}
	slices.Sort(h.elapsed)
	n := len(h.elapsed)
	median, longest = h.elapsed[n/2], h.elapsed[n-1]
	t.Logf("%-15s %d calls, %d wrong, %d without the store; median %v, 99th percentile %v, longest %v",
		name, n, len(h.errs), h.late, median, h.elapsed[n*99/100], longest)
	return median, longest
}

// fresh sends four checks for each user, with a limit of three.
type fresh struct{ users, left int64 }

// next sends the next check, reports whether the store decided, and returns an error if the response is wrong. After a response without
// the store the count is unknown, so the next call uses a new user.
func (f *fresh) next(name string, check func(user string) (checkResponse, error)) (stored bool, err error) {
	if f.left < 0 || f.users == 0 {
		f.users, f.left = f.users+1, 3
	}
	a, err := check(fmt.Sprint(name, f.users))
	if err != nil || a.Path == "local" {
		f.left = -1
		return false, err
	}
	if a.Path != "store" && (f.left > 0 || a.Path != "cache") || a.Allowed != (f.left > 0) || a.Remaining != max(0, f.left-1) {
		return true, fmt.Errorf("a user with %d remaining got %+v", f.left, a)
	}
	f.left--
	return true, nil
}

// fetch sends an honest request over HTTP. A status other than 200 is an error.
func fetch(client *http.Client, method, url, token, body string) ([]byte, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, res.Status, data)
	}
	return data, err
}

// probes returns the calls of honest callers, by listener.
func (f *fortress) probes() map[string]func() (stored bool, err error) {
	overHTTP, overGRPC, service := &fresh{}, &fresh{}, checkv1.NewCheckServiceClient(f.conn)
	check, ready, explain := "http://"+f.addressOf("http")+"/v1/check", "http://"+f.addressOf("ops")+"/readyz",
		"http://"+f.addressOf("admin")+"/v1/explain"
	calls := 0 // of the admin API, with the tokens in turn
	return map[string]func() (bool, error){
		"http": func() (bool, error) {
			return overHTTP.next("h", func(user string) (a checkResponse, err error) {
				data, err := fetch(f.client, "POST", check, "", `{"attributes": {"path": "/honest", "user": "`+user+`"}}`)
				if err == nil {
					err = json.Unmarshal(data, &a)
				}
				return a, err
			})
		},
		"grpc": func() (bool, error) {
			return overGRPC.next("g", func(user string) (a checkResponse, err error) {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				d, err := service.Check(ctx, &checkv1.CheckRequest{Attributes: map[string]string{"path": "/honest", "user": user}})
				if err == nil {
					a = checkResponse{Allowed: d.GetAllowed(), Path: d.GetPath(), Remaining: d.GetLimits()[0].GetRemaining()}
				}
				return a, err
			})
		},
		"ops": func() (bool, error) {
			_, err := fetch(f.client, "GET", ready, "", "")
			return true, err
		},
		"admin": func() (bool, error) {
			calls++
			data, err := fetch(f.client, "POST", explain, f.tokens[calls%honestTokens], `{"attributes": {"path": "/honest", "user": "a"}}`)
			if err != nil && strings.Contains(err.Error(), "store unavailable") {
				return false, nil
			}
			if err == nil && !bytes.Contains(data, []byte(`"honest"`)) {
				err = fmt.Errorf("the rule is not explained: %s", data)
			}
			return true, err
		},
	}
}

// vitals are the resources that a server uses.
type vitals struct {
	goroutines  int
	connections map[string]int // by listener
	memory      int            // MB, resident set size
	peak        int            // MB, the peak of memory
}

var gauge = regexp.MustCompile(`(?m)^(?:go_goroutines|headgate_connections\{listener="(\w+)"\}) (\d+)$`)

func (f *fortress) vitals() vitals {
	f.t.Helper()
	metrics, err := fetch(f.client, "GET", "http://"+f.addressOf("ops")+"/metrics", "", "")
	if err != nil {
		f.t.Fatal(err)
	}
	v := vitals{connections: map[string]int{}}
	for _, m := range gauge.FindAllSubmatch(metrics, -1) {
		n, _ := strconv.Atoi(string(m[2]))
		if len(m[1]) == 0 {
			v.goroutines = n
		} else {
			v.connections[string(m[1])] = n
		}
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.pid))
	if err != nil {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(state)) {
		var kB int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kB); n == 1 {
			v.memory = kB >> 10
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kB); n == 1 {
			v.peak = kB >> 10
		}
	}
	return v
}

// slowly connects slow clients to a listener and checks when they are disconnected.
func slowly(t *testing.T, listener, address, text string) {
	elapsed := make([]time.Duration, slowClients)
	errs := make([]error, slowClients)
	var clients sync.WaitGroup
	for i := range slowClients {
		clients.Go(func() { elapsed[i], errs[i] = slow(address, text) })
	}
	clients.Wait()
	shortest, longest := slices.Min(elapsed), slices.Max(elapsed)
	t.Logf("%s: %d slow clients were disconnected after %v to %v", listener, slowClients, shortest, longest)
	if shortest < 4*time.Second || longest > slowCut {
		t.Errorf("%s: disconnected too early or too late: %v", listener, errors.Join(errs[:3]...))
	}
}

// attackAll sends all kinds of hostile inputs to all listeners.
func (f *fortress) attackAll(t *testing.T, seed uint64) {
	checks := place{path: "/v1/check", read: true, bare: "404", prior: "404"}
	ops := place{path: "/nowhere", bare: "404", prior: "400"}
	admin := place{
		path: "/v1/explain", tokens: f.tokens[honestTokens:], read: true, bare: "401",
		prior: "401",
	}
	var attacks sync.WaitGroup
	for listener, kinds := range map[string][]hostile{
		"http":  slices.Concat(checks.wire(), checks.bodies(), misuses()),
		"grpc":  slices.Concat(frames(), calls(), clients(f.conn)),
		"ops":   ops.wire(),
		"admin": slices.Concat(admin.wire(), admin.bodies(), guesses()),
	} {
		address, text := f.addressOf(listener), "POST / HTTP/1.1\r\nHost: x\r\nX-Slow: aaaaaaaa"
		if listener == "grpc" {
			text = preface + frame(frameSettings, 0, 0, strings.Repeat("\x00", 600))
		}
		attacks.Go(func() { attack(t, seed, listener, address, kinds) })
		attacks.Go(func() { slowly(t, listener, address, text) })
	}
	attacks.Wait()
}

// TestServeHostile checks that hostile input is rejected, is cheap, and does not keep the server from serving honest callers. It does
// not run in parallel with other tests because it uses the whole machine.
func TestServeHostile(t *testing.T) {
	f := newFortress(t)
	probes := f.probes()
	before := probeAll(t, "before", probes)
	start := f.vitals()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	done := make(chan struct{})
	var callers sync.WaitGroup
	during := map[string]*honest{}
	for listener, probe := range probes {
		h := &honest{}
		during[listener] = h
		callers.Go(func() {
			for tick := time.Tick(10 * time.Millisecond); ; {
				h.call(probe)
				select {
				case <-done:
					return
				case <-tick:
				}
			}
		})
	}
	f.attackAll(t, seed)
	close(done)
	callers.Wait()

	select {
	case <-f.done:
		t.Fatalf("the server stopped: %v\n%s", f.err, f.log.String())
	default:
	}
	for listener, h := range during {
		if median, longest := h.result(t, "during "+listener); median > 200*time.Millisecond || longest > 10*time.Second {
			t.Errorf("%s: an honest caller waited up to %v, median %v", listener, longest, median)
		}
	}
	var end vitals
	defer func() { t.Logf("before %+v\nafter  %+v", start, end) }()
	eventually(t, "the resources before the attack", func() bool {
		end = f.vitals()
		// The margin covers the records of denied clients and memory that the garbage collector has not returned yet.
		return end.goroutines <= start.goroutines+10 && end.memory <= max(180, start.memory+130) &&
			maps.Equal(end.connections, start.connections)
	})
	for listener, median := range probeAll(t, "after", probes) {
		if median > max(5*time.Millisecond, 3*before[listener]) {
			t.Errorf("%s: calls took %v before and take %v now", listener, before[listener], median)
		}
	}
	log := f.log.String()
	if n := strings.Count(log, "\n"); n > 100 || regexp.MustCompile(`panic|goroutine \d|fatal error`).MatchString(log) {
		t.Errorf("%d lines of log:\n%.5000s", n, log)
	}
}

// probeAll runs each probe several times and returns the median durations, by listener. Nearly all decisions must come from the store.
func probeAll(t *testing.T, when string, probes map[string]func() (bool, error)) map[string]time.Duration {
	t.Helper()
	const times = 200
	medians := map[string]time.Duration{}
	for listener, probe := range probes {
		h := &honest{}
		for range times {
			h.call(probe)
		}
		if medians[listener], _ = h.result(t, when+" "+listener); h.late > times/20 {
			t.Errorf("%s: %d of %d decisions were not made by the store", listener, h.late, times)
		}
	}
	return medians
}
