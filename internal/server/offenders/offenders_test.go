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

// world is Offenders with a clock that is set by hand.
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

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.time = w.time.Add(d)
}

func subject(i int) (s headgate.Subject) {
	binary.BigEndian.PutUint64(s[8:], uint64(i))
	return s
}

// observation is one that a test changes and notes again and again.
func observation(rule string, allowed bool, remaining int64) *headgate.Observation {
	l := headgate.LimitDecision{Rule: rule, Limit: headgate.PerMinute(100), Enforced: true}
	l.Allowed, l.Remaining = allowed, remaining
	return &headgate.Observation{
		Call: headgate.CallCheck, Decision: headgate.Decision{Allowed: allowed, Limits: []headgate.LimitDecision{l}},
	}
}

func (w *world) deny(rule string, who, times int) {
	seen := observation(rule, false, 0)
	seen.Decision.Limits[0].Subject = subject(who)
	for range times {
		w.Note(seen)
	}
}

// use is an allowed decision that leaves so much of 100.
func (w *world) use(rule string, who int, left int64) {
	seen := observation(rule, true, left)
	seen.Decision.Limits[0].Subject = subject(who)
	w.Note(seen)
}

// ask is what an operator sees of a single node.
func (w *world) ask(q Query) Answer { return Merge(q, []Answer{w.Answer(q)}) }

// rows are an answer in short: "rule/subject denied±error", and "rule/subject used of".
func rows(a Answer) (limited, near []string) {
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

func expect(t *testing.T, a Answer, limited, near []string) {
	t.Helper()
	if l, n := rows(a); !slices.Equal(l, limited) || !slices.Equal(n, near) {
		t.Errorf("limited %q, near %q; want %q and %q", l, n, limited, near)
	}
}

// What a limiter really says is counted: each rule once for a request, if it is enforced. Names are what the rule counts by.
func TestNoteDecisions(t *testing.T) {
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
		observed := limiter.WithObserver(func(_ context.Context, seen *headgate.Observation) { w.Note(seen) })
		request := func(user string) headgate.Request {
			return headgate.Request{Attributes: headgate.Attributes{"user": user, "path": "/secret"}}
		}
		for range 5 { // of which three are denied
			_, _ = observed.Check(t.Context(), request("ann"))
			_, _ = observed.Peek(t.Context(), request("ann"))
		}
		_, _ = observed.Reserve(t.Context(), request("ann"), time.Second)
		_, _ = observed.Check(t.Context(), request("bob"))
		_, _ = observed.Reserve(t.Context(), request("bob"), time.Second)
		_, _ = observed.CheckAll(t.Context(), []headgate.BatchRequest{{Request: request("bob"), Peek: true}})
		_, _ = observed.Check(t.Context(), headgate.Request{Rule: "none"})

		a := w.ask(Query{})
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
		text, err := json.Marshal(w.Answer(Query{}))
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

// Calls and limits that do not deny or were not decided do not count.
func TestWhatDoesNotCount(t *testing.T) {
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
			seen := observation(name, allowed, 0)
			change(seen)
			w.Note(seen)
		}
	}
	expect(t, w.ask(Query{}), nil, nil)
}

// A window is the present minute and those before it, and the last of ten minutes is forgotten.
func TestWindows(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	w.pass(59 * time.Second)
	w.deny("a", 1, 3)
	w.use("a", 7, 5)
	w.pass(time.Second)
	w.deny("a", 1, 2)
	w.deny("a", 2, 4)
	w.use("a", 7, 2)
	w.use("a", 8, 20)
	w.pass(8 * time.Minute)
	w.use("a", 7, 9)
	w.deny("b", 1, 1)
	expect(t, w.ask(Query{WindowSeconds: 1}), []string{"b/1 1-0"}, []string{"a/7 91/100"})
	expect(t, w.ask(Query{WindowSeconds: 9 * 60, Rule: "a"}), []string{"a/2 4-0", "a/1 2-0"}, []string{"a/7 98/100", "a/8 80/100"})
	expect(t, w.ask(Query{WindowSeconds: 9*60 + 1, Rule: "a", Most: 1}), []string{"a/1 5-0"}, []string{"a/7 98/100"})
	expect(t, w.ask(Query{WindowSeconds: 9e9, Rule: "none"}), nil, nil)
	w.pass(time.Minute)
	expect(t, w.ask(Query{WindowSeconds: 600, Rule: "a"}), []string{"a/2 4-0", "a/1 2-0"}, []string{"a/7 98/100", "a/8 80/100"})
	w.deny("a", 1, 1)
	w.pass(-time.Minute) // a clock that is set back a little changes nothing
	w.deny("a", 1, 1)
	w.pass(2 * time.Minute)
	w.deny("a", 1, 1)
	expect(t, w.ask(Query{WindowSeconds: 600, Rule: "a"}), []string{"a/1 3-0"}, []string{"a/7 91/100"})
	expect(t, w.ask(Query{WindowSeconds: 120, Rule: "a"}), []string{"a/1 3-0"}, nil)
	w.pass(-24 * time.Hour) // by much: it begins anew
	w.deny("a", 3, 1)
	expect(t, w.ask(Query{WindowSeconds: 600, Rule: "a"}), []string{"a/3 1-0"}, nil)
}

// Of those who came near the nearest are kept, whoever else comes; who is denied is not one of them.
func TestNear(t *testing.T) {
	t.Parallel()
	w := newWorld(Options{})
	best := map[int]int64{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		who, left := random.IntN(200), int64(random.IntN(1000))
		seen := observation("a", true, left)
		seen.Decision.Limits[0].Subject, seen.Decision.Limits[0].Limit = subject(who), headgate.PerMinute(int64(1000+who*1000))
		w.Note(seen)
		best[who] = max(best[who], shareOf(int64(1000+who*1000)-left, int64(1000+who*1000)))
	}
	var want []int64
	for _, share := range best {
		want = append(want, share)
	}
	slices.Sort(want)
	slices.Reverse(want)
	a := w.ask(Query{Most: 100})
	if len(a.Near) != maxNear {
		t.Fatalf("%d rows, want %d", len(a.Near), maxNear)
	}
	for i, n := range a.Near {
		if s, _ := headgate.ParseSubject(n.Subject); shareOf(n.Used, n.Of) != want[i] || best[int(binary.BigEndian.Uint64(s[8:]))] != want[i] {
			t.Errorf("row %d: %+v, want %d", i, n, want[i])
		}
	}
}

// Who is denied is not near, before or after, and takes no place from those who are. Every minute has room for all.
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
	if _, near := rows(w.ask(Query{})); !slices.Equal(near, []string{"a/200 90/100"}) {
		t.Errorf("%q", near)
	}
	for who := range maxNear {
		w.use("b", who, 0)
	}
	w.pass(time.Minute)
	w.use("b", 200, 20)
	expect(t, w.ask(Query{WindowSeconds: 60}), nil, []string{"b/200 80/100"})
}

// A name is asked for when somebody is denied again, and only then.
func TestNameOnce(t *testing.T) {
	t.Parallel()
	rules, err := headgate.Compile(headgate.Rule{ID: "a", By: []string{"user"}, Limit: headgate.PerMinute(100)})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	w := newWorld(Options{Clear: true, Rules: func() *headgate.RuleSet {
		asked++
		return rules
	}})
	seen := observation("a", false, 0)
	seen.Attributes = headgate.Attributes{"user": "ann"}
	for i, want := range []int{0, 1, 1, 1, 1} {
		if w.Note(seen); asked != want {
			t.Errorf("denied %d times: asked %d times, want %d", i+1, asked, want)
		}
	}
}

// Nothing is lost between many goroutines, unless rules are let go; that happens all the time in the second world.
func TestTogether(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	w, small := newWorld(Options{}), newWorld(Options{})
	small.most = 32 << 10
	const each = 20_000
	var together sync.WaitGroup
	for range 4 {
		together.Go(func() {
			for i := range each {
				w.deny("all", i%50, 1)
				w.use("all", 100+i%100, int64(i%20))
				small.deny("rule "+strconv.Itoa(i%64), i, 1)
				if i%1000 == 0 {
					w.Answer(Query{})
					small.Answer(Query{})
					small.pass(time.Second)
				}
			}
		})
	}
	together.Wait()
	total := int64(0)
	for _, l := range w.ask(Query{Most: 100}).Limited {
		total += l.Denied
	}
	if total != 4*each {
		t.Errorf("%d denials, want %d", total, 4*each)
	}
	total = 0
	for _, r := range small.rules {
		total += r.bytes
	}
	if total != small.bytes.Load() || total > 2*small.most {
		t.Errorf("rules have %d bytes, together %d of %d", total, small.bytes.Load(), small.most)
	}
}

// An ordinary decision, and a denial of somebody who is known, allocate nothing.
func TestNoAllocation(t *testing.T) {
	w := newWorld(Options{})
	w.deny("a", 1, 10)
	for name, seen := range map[string]*headgate.Observation{
		"far": observation("a", true, 50), "near": observation("a", true, 3), "denied": observation("a", false, 0),
	} {
		w.Note(seen)
		if n := testing.AllocsPerRun(100, func() { w.Note(seen) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
