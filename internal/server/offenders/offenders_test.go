package offenders

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

var noon = time.Date(2026, 3, 6, 12, 0, 0, 0, time.UTC)

// world is Offenders with a manual clock.
type world struct {
	*Offenders
	mu   sync.Mutex
	time time.Time
}

func newWorld(options Options) *world {
	w := &world{time: noon}
	w.Offenders = New(options)
	w.now = func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.time
	}
	return w
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time = w.time.Add(d)
}

func subject(i int) (s headgate.Subject) {
	binary.BigEndian.PutUint64(s[8:], uint64(i))
	return s
}

// observation returns an observation that a test can change and reuse.
func observation(rule string, allowed bool, remaining int64) *headgate.Observation {
	l := headgate.LimitDecision{Rule: rule, Limit: headgate.PerMinute(100), Enforced: true}
	l.Allowed, l.Remaining = allowed, remaining
	return &headgate.Observation{
		Call: headgate.CallCheck, Decision: headgate.Decision{Allowed: allowed, Limits: []headgate.LimitDecision{l}},
	}
}

func (w *world) deny(rule string, who, times int) {
	ob := observation(rule, false, 0)
	ob.Decision.Limits[0].Subject = subject(who)
	for range times {
		w.Observe(ob)
	}
}

// use records an allowed decision that leaves so many of 100 units.
func (w *world) use(rule string, who int, left int64) {
	ob := observation(rule, true, left)
	ob.Decision.Limits[0].Subject = subject(who)
	w.Observe(ob)
}

// result returns the result of a single node, as an operator sees it.
func (w *world) result(q Query) Result { return Merge(q, []Result{w.Result(q)}) }

// rows returns a result in short form: "rule/subject denied-error" and "rule/subject used/of".
func rows(a Result) (limited, near []string) {
	for _, l := range a.Limited {
		s, _ := headgate.ParseSubject(l.Subject)
		limited = append(limited, fmt.Sprintf("%s/%d %d-%d", l.Rule, s[15], l.Denied, l.Error))
	}
	for _, n := range a.Near {
		s, _ := headgate.ParseSubject(n.Subject)
		near = append(near, fmt.Sprintf("%s/%d %d/%d", n.Rule, s[15], n.Used, n.Of))
	}
	return limited, near
}

func expect(t *testing.T, a Result, limited, near []string) {
	t.Helper()
	if l, n := rows(a); !slices.Equal(l, limited) || !slices.Equal(n, near) {
		t.Errorf("limited %q, near %q; want %q and %q", l, n, limited, near)
	}
}

// TestObserveDecisions checks that the decisions of a limiter are counted: each enforced rule once per request, with the
// attributes that it counts by.
func TestObserveDecisions(t *testing.T) {
	t.Parallel()
	two := map[string]headgate.Limit{"minute": headgate.PerMinute(2), "hour": headgate.PerHour(2)}
	rules, err := headgate.Compile(
		headgate.Rule{ID: "two", By: []string{"user"}, Limits: two},
		headgate.Rule{ID: "shadow", By: []string{"user"}, Limit: headgate.PerHour(1), Mode: headgate.Shadow},
		headgate.Rule{ID: "wide", By: []string{"user"}, Limit: headgate.PerHour(10)},
		headgate.Rule{ID: "leaky", By: []string{"user"}, MaxDelay: time.Hour, Limit: headgate.Limit{
			Algorithm: headgate.LeakyBucket, Count: 1, Window: time.Second,
		}})
	if err != nil {
		t.Fatal(err)
	}
	for _, clear := range []bool{true, false} {
		limiter := headgate.NewLimiter(memstore.New(memstore.Options{}), rules, headgate.Options{})
		w := newWorld(Options{Rules: limiter.Rules, Clear: clear})
		observed := limiter.WithObserver(func(_ context.Context, ob *headgate.Observation) { w.Observe(ob) })
		request := func(user string) headgate.Request {
			return headgate.Request{Attributes: headgate.Attributes{"user": user, "path": "/secret"}}
		}
		for range 5 { // three of them are denied
			_, _ = observed.Check(t.Context(), request("ann"))
			_, _ = observed.Peek(t.Context(), request("ann"))
		}
		_, _ = observed.Reserve(t.Context(), request("ann"), time.Second)
		_, _ = observed.Check(t.Context(), request("bob"))
		_, _ = observed.Reserve(t.Context(), request("bob"), time.Second)
		_, _ = observed.CheckAll(t.Context(), []headgate.BatchRequest{{Request: request("bob"), Peek: true}})
		_, _ = observed.Check(t.Context(), headgate.Request{Rule: "none"})

		a := w.result(Query{})
		if len(a.Limited) != 1 || a.Limited[0].Rule != "two" || a.Limited[0].Denied != 4 || a.Limited[0].Error != 0 {
			t.Errorf("limited: %+v", a.Limited)
		}
		if n := a.Near; len(n) != 1 || n[0].Rule != "two" || n[0].Limit == "" || n[0].Used != 2 || n[0].Of != 2 || !n[0].At.Equal(noon) {
			t.Errorf("near: %+v", n)
		}
		var names []headgate.Attributes
		for _, l := range a.Limited {
			names = append(names, l.Attributes)
		}
		for _, n := range a.Near {
			names = append(names, n.Attributes)
		}
		want := []headgate.Attributes{nil, nil}
		if clear {
			want = []headgate.Attributes{{"user": "ann"}, {"user": "bob"}}
		}
		if !reflect.DeepEqual(names, want) {
			t.Errorf("clear %v: %v, want %v", clear, names, want)
		}
		// Nothing else may leave the node.
		text, err := json.Marshal(w.Result(Query{}))
		if err != nil {
			t.Fatal(err)
		}
		for word, shown := range map[string]bool{"secret": false, "user": clear, `"ann"`: clear} {
			if strings.Contains(string(text), word) != shown {
				t.Errorf("clear %v: %s", clear, text)
			}
		}
	}
}

// TestIgnoredObservations checks that other calls, and limits that do not deny or were not decided, do not count.
func TestIgnoredObservations(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	for name, change := range map[string]func(*headgate.Observation){
		"call":     func(o *headgate.Observation) { o.Call = headgate.CallCommit },
		"shadow":   func(o *headgate.Observation) { o.Decision.Limits[0].Enforced = false },
		"no limit": func(o *headgate.Observation) { o.Decision.Limits = nil },
		"far":      func(o *headgate.Observation) { o.Decision.Limits[0].Allowed, o.Decision.Limits[0].Remaining = true, 21 },
		"leaky": func(o *headgate.Observation) {
			o.Decision.Limits[0].Allowed, o.Decision.Limits[0].Remaining = true, 500
		},
		"undecided": func(o *headgate.Observation) {
			o.Decision.Limits[0].Allowed, o.Decision.Limits[0].Err = true, headgate.ErrUnavailable
		},
		"nothing": func(o *headgate.Observation) {
			o.Decision.Limits[0].Allowed, o.Decision.Limits[0].Limit = true, headgate.Limit{}
		},
	} {
		for _, allowed := range []bool{true, false} {
			ob := observation(name, allowed, 0)
			change(ob)
			w.Observe(ob)
		}
	}
	expect(t, w.result(Query{}), nil, nil)
}

// TestWindows checks that a window consists of the current minute and those before it, and that minutes are dropped after ten.
func TestWindows(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	w.advance(59 * time.Second)
	w.deny("a", 1, 3)
	w.use("a", 7, 5)
	w.advance(time.Second)
	w.deny("a", 1, 2)
	w.deny("a", 2, 4)
	w.use("a", 7, 2)
	w.use("a", 8, 20)
	w.advance(8 * time.Minute)
	w.use("a", 7, 9)
	w.deny("b", 1, 1)
	expect(t, w.result(Query{WindowSeconds: 1}), []string{"b/1 1-0"}, []string{"a/7 91/100"})
	expect(t, w.result(Query{WindowSeconds: 9 * 60, Rule: "a"}), []string{"a/2 4-0", "a/1 2-0"}, []string{"a/7 98/100", "a/8 80/100"})
	expect(t, w.result(Query{WindowSeconds: 9*60 + 1, Rule: "a", Limit: 1}), []string{"a/1 5-0"}, []string{"a/7 98/100"})
	expect(t, w.result(Query{WindowSeconds: 9e9, Rule: "none"}), nil, nil)
	w.advance(time.Minute)
	expect(t, w.result(Query{WindowSeconds: 600, Rule: "a"}), []string{"a/2 4-0", "a/1 2-0"}, []string{"a/7 98/100", "a/8 80/100"})
	w.deny("a", 1, 1)
	w.advance(-time.Minute) // a small step back has no effect
	w.deny("a", 1, 1)
	w.advance(2 * time.Minute)
	w.deny("a", 1, 1)
	expect(t, w.result(Query{WindowSeconds: 600, Rule: "a"}), []string{"a/1 3-0"}, []string{"a/7 91/100"})
	expect(t, w.result(Query{WindowSeconds: 120, Rule: "a"}), []string{"a/1 3-0"}, nil)
	w.advance(-24 * time.Hour) // a large step back starts over
	w.deny("a", 3, 1)
	expect(t, w.result(Query{WindowSeconds: 600, Rule: "a"}), []string{"a/3 1-0"}, nil)
}

// TestNear checks that the nearest subjects are kept.
func TestNear(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	best := map[int]int64{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		who, left := random.IntN(200), int64(random.IntN(1000))
		ob := observation("a", true, left)
		ob.Decision.Limits[0].Subject, ob.Decision.Limits[0].Limit = subject(who), headgate.PerMinute(int64(1000+who*1000))
		w.Observe(ob)
		best[who] = max(best[who], shareOf(int64(1000+who*1000)-left, int64(1000+who*1000)))
	}
	var want []int64
	for _, share := range best {
		want = append(want, share)
	}
	slices.Sort(want)
	slices.Reverse(want)
	a := w.result(Query{Limit: 100})
	if len(a.Near) != maxNear {
		t.Fatalf("%d rows, want %d", len(a.Near), maxNear)
	}
	for i, n := range a.Near {
		if s, _ := headgate.ParseSubject(n.Subject); shareOf(n.Used, n.Of) != want[i] || best[int(binary.BigEndian.Uint64(s[8:]))] != want[i] {
			t.Errorf("row %d: %+v, want %d", i, n, want[i])
		}
	}
}

// TestNearAndDenied checks that a denied subject is not near, before or after, and takes no place of near subjects, and that
// every minute has its own list.
func TestNearAndDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	for who := range maxNear {
		w.use("a", who, 0)
	}
	for who := range maxNear {
		w.deny("a", who, 1)
		w.use("a", who, 0)
	}
	w.use("a", 200, 10)
	if _, near := rows(w.result(Query{})); !slices.Equal(near, []string{"a/200 90/100"}) {
		t.Errorf("%q", near)
	}
	for who := range maxNear {
		w.use("b", who, 0)
	}
	w.advance(time.Minute)
	w.use("b", 200, 20)
	expect(t, w.result(Query{WindowSeconds: 60}), nil, []string{"b/200 80/100"})
}

// TestNameOnce checks that the attributes are read once, when a subject is denied again.
func TestNameOnce(t *testing.T) {
	t.Parallel()
	rules, err := headgate.Compile(headgate.Rule{ID: "a", By: []string{"user"}, Limit: headgate.PerMinute(100)})
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	w := newWorld(Options{Clear: true, Rules: func() *headgate.RuleSet {
		calls++
		return rules
	}})
	ob := observation("a", false, 0)
	ob.Attributes = headgate.Attributes{"user": "ann"}
	for i, want := range []int{0, 1, 1, 1, 1} {
		if w.Observe(ob); calls != want {
			t.Errorf("denied %d times: read %d times, want %d", i+1, calls, want)
		}
	}
}

// TestConcurrent checks that no denial is lost between goroutines unless rules are evicted, which happens constantly in the
// second world.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	w, small := newWorld(Options{}), newWorld(Options{})
	small.maxBytes = 32 << 10
	const each = 20_000
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range each {
				w.deny("all", i%50, 1)
				w.use("all", 100+i%100, int64(i%20))
				small.deny("rule "+strconv.Itoa(i%64), i, 1)
				if i%1000 == 0 {
					w.Result(Query{})
					small.Result(Query{})
					small.advance(time.Second)
				}
			}
		})
	}
	wg.Wait()
	total := int64(0)
	for _, l := range w.result(Query{Limit: 100}).Limited {
		total += l.Denied
	}
	if total != 4*each {
		t.Errorf("%d denials, want %d", total, 4*each)
	}
	total = 0
	for _, r := range small.rules {
		total += r.bytes
	}
	if total != small.bytes.Load() || total > 2*small.maxBytes {
		t.Errorf("rules have %d bytes, together %d of %d", total, small.bytes.Load(), small.maxBytes)
	}
}

// TestNoAllocation checks that an ordinary decision, and the denial of a known subject, allocate nothing.
func TestNoAllocation(t *testing.T) {
	w := newWorld(Options{})
	w.deny("a", 1, 10)
	for name, ob := range map[string]*headgate.Observation{
		"far": observation("a", true, 50), "near": observation("a", true, 3), "denied": observation("a", false, 0),
	} {
		w.Observe(ob)
		if n := testing.AllocsPerRun(100, func() { w.Observe(ob) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
