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
	// hostileInputs is how many each listener gets, from so many connections at a time.
	hostileInputs, attackers = 10_000, 8
	// slowClients is how many each listener gets besides, and slowCut when the last must be gone: after the time that it
	// has for a header, and some for a busy machine.
	slowClients, slowCut = 200, 7 * time.Second
	// mostCut is how many inputs to a listener may be cut before they are answered, because the machine stood still for as
	// long as a client has for a header.
	mostCut = 10
	// guessingFrom is the address of those who guess tokens, for which nobody else is to blame.
	guessingFrom = "127.0.0.2"
)

// hostile is one way to be so.
type hostile struct {
	name string
	// want are the answers that are right. The first must be seen at least once; "none" is a connection that ends without.
	want string
	// most is how many inputs there are of this kind; 0 means an equal part of the rest.
	most int
	// do is one input, and all answers to it.
	do func(r *rand.Rand, address string) []string
}

func (k hostile) atMost(n int) hostile {
	k.most = n
	return k
}

// tally is what became of the inputs to one listener.
type tally struct {
	mu   sync.Mutex
	seen map[string]map[string]int // by kind and answer
	bad  []string
	cut  int
}

func (y *tally) note(listener string, input int, k *hostile, answers []string) {
	if len(answers) == 0 {
		answers = []string{"none"}
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.seen[k.name] == nil {
		y.seen[k.name] = map[string]int{}
	}
	y.seen[k.name]["inputs"]++
	for _, a := range answers {
		y.seen[k.name][a]++
		if a == "none" && !slices.Contains(strings.Fields(k.want), a) && y.cut < mostCut {
			y.cut++
			continue
		}
		if !slices.Contains(strings.Fields(k.want), a) && len(y.bad) < 20 {
			y.bad = append(y.bad, fmt.Sprintf("%s, input %d, %s: answered %s, which is none of %s", listener, input, k.name, a,
				k.want))
		}
	}
}

// attack sends all inputs to one listener.
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
			t.Errorf("%s, %s: never answered %s", listener, k.name, first)
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

// planOf is which kind each input is of.
func planOf(kinds []hostile) []int {
	var plan, rest []int
	for i, k := range kinds {
		if k.most == 0 {
			rest = append(rest, i)
		}
		for range k.most {
			plan = append(plan, i)
		}
	}
	for i := 0; len(plan) < hostileInputs; i++ {
		plan = append(plan, rest[i%len(rest)])
	}
	return plan
}

// honestTokens and hostileTokens are how many people ask the admin API in turn, so that none of them asks too often.
const (
	honestTokens  = 10
	hostileTokens = 200
)

// fortress is a server under attack, and what its honest callers use.
type fortress struct {
	*running
	pid    int
	tokens []string // the first are those of honest callers
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
	f.running, f.pid = serveBinary(t, "--config", file)
	f.says("Redis answers")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	f.client = &http.Client{Transport: transport, Timeout: patience}
	var err error
	if f.conn, err = grpc.NewClient(f.at("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.conn.Close() })
	return f
}

// serveBinary runs the program as a process of its own.
func serveBinary(t *testing.T, args ...string) (r *running, pid int) {
	t.Helper()
	binary := testenv.BuildHeadgate(t)
	r = &running{t: t, done: make(chan struct{})}
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

// honest is a caller who asks all the while.
type honest struct {
	took []time.Duration
	late int // answers that the store did not give in time
	errs []error
}

// ask asks once. The question says whether the store answered in time.
func (h *honest) ask(question func() (stored bool, err error)) {
	began := time.Now()
	stored, err := question()
	h.took = append(h.took, time.Since(began))
	switch {
	case err != nil:
		h.errs = append(h.errs, err)
	case !stored:
		h.late++
	}
}

// result is the median and the longest time. Every answer must have been right.
func (h *honest) result(t *testing.T, name string) (median, longest time.Duration) {
	t.Helper()
	for _, err := range h.errs[:min(len(h.errs), 5)] {
		t.Errorf("%s: %v", name, err)
	}
	slices.Sort(h.took)
	n := len(h.took)
	median, longest = h.took[n/2], h.took[n-1]
	t.Logf("%-15s asked %d times, %d wrong, %d by the store too late; median %v, 99 %% %v, longest %v",
		name, n, len(h.errs), h.late, median, h.took[n*99/100], longest)
	return median, longest
}

// fresh is a user who asks four times under a limit of three.
type fresh struct{ users, left int64 }

// next has the user ask, and says whether the store answered, and what is wrong with the answer. After one that is not
// the store's nobody knows what was counted.
func (f *fresh) next(name string, ask func(user string) (answer, error)) (stored bool, err error) {
	if f.left < 0 || f.users == 0 {
		f.users, f.left = f.users+1, 3
	}
	a, err := ask(fmt.Sprint(name, f.users))
	if err != nil || a.Path == "local" {
		f.left = -1
		return false, err
	}
	if a.Path != "store" && (f.left > 0 || a.Path != "cache") || a.Allowed != (f.left > 0) || a.Remaining != max(0, f.left-1) {
		return true, fmt.Errorf("a user with %d left was answered %+v", f.left, a)
	}
	f.left--
	return true, nil
}

// fetch is an honest request over HTTP. Only 200 is an answer.
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

// questions are what honest callers of each listener ask.
func (f *fortress) questions() map[string]func() (stored bool, err error) {
	overHTTP, overGRPC, service := &fresh{}, &fresh{}, checkv1.NewCheckServiceClient(f.conn)
	check, ready, explain := "http://"+f.at("http")+"/v1/check", "http://"+f.at("ops")+"/readyz",
		"http://"+f.at("admin")+"/v1/explain"
	asked := 0 // of the admin API, by one after the other
	return map[string]func() (bool, error){
		"http": func() (bool, error) {
			return overHTTP.next("h", func(user string) (a answer, err error) {
				data, err := fetch(f.client, "POST", check, "", `{"attributes": {"path": "/honest", "user": "`+user+`"}}`)
				if err == nil {
					err = json.Unmarshal(data, &a)
				}
				return a, err
			})
		},
		"grpc": func() (bool, error) {
			return overGRPC.next("g", func(user string) (a answer, err error) {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				d, err := service.Check(ctx, &checkv1.CheckRequest{Attributes: map[string]string{"path": "/honest", "user": user}})
				if err == nil {
					a = answer{Allowed: d.GetAllowed(), Path: d.GetPath(), Remaining: d.GetLimits()[0].GetRemaining()}
				}
				return a, err
			})
		},
		"ops": func() (bool, error) {
			_, err := fetch(f.client, "GET", ready, "", "")
			return true, err
		},
		"admin": func() (bool, error) {
			asked++
			data, err := fetch(f.client, "POST", explain, f.tokens[asked%honestTokens], `{"attributes": {"path": "/honest", "user": "a"}}`)
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

// vitals is what a server holds on to.
type vitals struct {
	goroutines  int
	connections map[string]int // by listener
	memory      int            // MB, as the system sees it
	most        int            // MB, the most there ever was
}

var gauge = regexp.MustCompile(`(?m)^(?:go_goroutines|headgate_connections\{listener="(\w+)"\}) (\d+)$`)

func (f *fortress) vitals() vitals {
	f.t.Helper()
	metrics, err := fetch(f.client, "GET", "http://"+f.at("ops")+"/metrics", "", "")
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
			v.most = kB >> 10
		}
	}
	return v
}

// slowly keeps a listener busy with clients that take their time.
func slowly(t *testing.T, listener, address, text string) {
	took := make([]time.Duration, slowClients)
	errs := make([]error, slowClients)
	var clients sync.WaitGroup
	for i := range slowClients {
		clients.Go(func() { took[i], errs[i] = slow(address, text) })
	}
	clients.Wait()
	shortest, longest := slices.Min(took), slices.Max(took)
	t.Logf("%s: %d slow clients were cut after %v to %v", listener, slowClients, shortest, longest)
	if shortest < 4*time.Second || longest > slowCut {
		t.Errorf("%s: that is too early or too late: %v", listener, errors.Join(errs[:3]...))
	}
}

// attackAll attacks every listener in every way.
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
		address, text := f.at(listener), "POST / HTTP/1.1\r\nHost: x\r\nX-Slow: aaaaaaaa"
		if listener == "grpc" {
			text = preface + frame(frameSettings, 0, 0, strings.Repeat("\x00", 600))
		}
		attacks.Go(func() { attack(t, seed, listener, address, kinds) })
		attacks.Go(func() { slowly(t, listener, address, text) })
	}
	attacks.Wait()
}

// Whatever is sent to a listener is denied, costs little, and keeps nobody from being answered. It is not run beside
// other tests: it takes the whole machine.
func TestServeHostile(t *testing.T) {
	f := newFortress(t)
	questions := f.questions()
	before := askAll(t, "before", questions)
	start := f.vitals()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	over := make(chan struct{})
	var asking sync.WaitGroup
	meanwhile := map[string]*honest{}
	for listener, question := range questions {
		h := &honest{}
		meanwhile[listener] = h
		asking.Go(func() {
			for tick := time.Tick(10 * time.Millisecond); ; {
				h.ask(question)
				select {
				case <-over:
					return
				case <-tick:
				}
			}
		})
	}
	f.attackAll(t, seed)
	close(over)
	asking.Wait()

	select {
	case <-f.done:
		t.Fatalf("the server ended: %v\n%s", f.err, f.log.String())
	default:
	}
	for listener, h := range meanwhile {
		if median, longest := h.result(t, "meanwhile "+listener); median > 200*time.Millisecond || longest > 10*time.Second {
			t.Errorf("%s: an honest caller waited for %v, mostly for %v", listener, longest, median)
		}
	}
	var end vitals
	defer func() { t.Logf("before %+v\nafter  %+v", start, end) }()
	eventually(t, "the former size", func() bool {
		end = f.vitals()
		// What it remembers of whom it has denied is part of that, and what the garbage collector has not given back yet.
		return end.goroutines <= start.goroutines+10 && end.memory <= max(180, start.memory+130) &&
			maps.Equal(end.connections, start.connections)
	})
	for listener, median := range askAll(t, "after", questions) {
		if median > max(5*time.Millisecond, 3*before[listener]) {
			t.Errorf("%s: answers took %v, and take %v now", listener, before[listener], median)
		}
	}
	log := f.log.String()
	if n := strings.Count(log, "\n"); n > 100 || regexp.MustCompile(`panic|goroutine \d|fatal error`).MatchString(log) {
		t.Errorf("%d lines of log:\n%.5000s", n, log)
	}
}

// askAll asks each listener some times, and gives back how long the median took. The store must have answered nearly
// always.
func askAll(t *testing.T, when string, questions map[string]func() (bool, error)) map[string]time.Duration {
	t.Helper()
	const times = 200
	medians := map[string]time.Duration{}
	for listener, question := range questions {
		h := &honest{}
		for range times {
			h.ask(question)
		}
		if medians[listener], _ = h.result(t, when+" "+listener); h.late > times/20 {
			t.Errorf("%s: %d of %d answers were not the store's", listener, h.late, times)
		}
	}
	return medians
}
