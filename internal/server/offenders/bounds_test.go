package offenders

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// TestZipf checks that few frequent subjects are found among a million others, with less than a megabyte.
func TestZipf(t *testing.T) {
	for _, skew := range []float64{1.05, 1.2} {
		t.Run(strconv.FormatFloat(skew, 'g', -1, 64), func(t *testing.T) {
			events := 10_000_000
			if testing.Short() || testenv.Race() {
				events /= 20
			}
			w := newWorld(Options{})
			random := rand.NewZipf(rand.New(rand.NewPCG(3, 4)), skew, 1, 999_999)
			truth := make([]int64, 1_000_000)
			ob := observation("zipf", false, 0)
			before := heap()
			for range events {
				i := int(random.Uint64())
				truth[i]++
				ob.Decision.Limits[0].Subject = subject(i)
				w.Observe(ob)
			}
			w.checkMemory(t, heap()-before, 1<<20)
			a := w.result(Query{Limit: 25})
			found := map[string]bool{}
			for _, l := range a.Limited {
				found[l.Subject] = true
				s, _ := headgate.ParseSubject(l.Subject)
				within(t, l, truth[binary.BigEndian.Uint64(s[8:])])
			}
			t.Logf("first %+v, last %+v", a.Limited[0], a.Limited[24])
			sorted := slices.Sorted(slices.Values(truth))
			for i, n := range truth {
				if s := subject(i); n >= sorted[len(sorted)-20] && !found[s.String()] {
					t.Errorf("subject %d, denied %d times, is not listed", i, n)
				}
			}
		})
	}
}

// TestSketch checks the bounds of every entry, and that no other subject was denied more often than the lowest count.
func TestSketch(t *testing.T) {
	t.Parallel()
	var s sketch
	random := rand.New(rand.NewPCG(5, 6))
	zipf := rand.NewZipf(random, 1.05, 1, 20_000)
	truth := map[headgate.Subject]int64{}
	for range 200_000 {
		who := subject(int(zipf.Uint64()))
		truth[who]++
		s.add(who)
	}
	lowest := s.entries[s.lowest()].denied
	total := int64(0)
	for i := range s.entries {
		e := &s.entries[i]
		total += e.denied
		if n := truth[e.subject]; n > e.denied || n < e.denied-e.err || e.denied < lowest || !s.has(e.subject) {
			t.Errorf("%+v, want %d within its bounds; lowest count %d, found: %v", e, n, lowest, s.has(e.subject))
		}
	}
	for who, n := range truth {
		if !s.has(who) && n > lowest {
			t.Errorf("%v was denied %d times and is not present; lowest count %d", who, n, lowest)
		}
	}
	if len(s.entries) != maxEntries || total != 200_000 {
		t.Errorf("%d entries, %d denials", len(s.entries), total)
	}
}

// checkMemory fails if the heap has grown by more than limit, or by more than the accounted memory plus 5%.
func (w *world) checkMemory(t *testing.T, bytes, limit int64) {
	t.Helper()
	accounted := w.bytes.Load()
	t.Logf("%d bytes, accounted %d", bytes, accounted)
	if bytes > limit || accounted > limit || bytes > accounted+accounted/20 {
		t.Errorf("%d bytes, accounted %d, want at most %d", bytes, accounted, limit)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryOfOneRule checks that a rule takes at most a megabyte, with long attributes and full minutes.
func TestMemoryOfOneRule(t *testing.T) {
	by := []string{"user", "tenant", "path", "header.a", "header.b", "header.c", "header.d", "header.e", "header.f"}
	rules, err := headgate.Compile(headgate.Rule{ID: "long", By: by, Limit: headgate.PerMinute(100)})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(Options{Rules: func() *headgate.RuleSet { return rules }, Clear: true})
	attributes := headgate.Attributes{}
	for _, name := range by {
		attributes[name] = strings.Repeat("x", 4_000)
	}
	denied, near := observation("long", false, 0), observation("long", true, 0)
	denied.Attributes, near.Attributes = attributes, attributes
	before := heap()
	for minute := range 12 {
		for i := range 3 * maxEntries {
			denied.Decision.Limits[0].Subject, near.Decision.Limits[0].Subject = subject(minute*100_000+i), subject(i+10_000_000)
			near.Decision.Limits[0].Remaining = int64(20 - i*20/(3*maxEntries)) // increasingly near
			w.Observe(denied)
			w.Observe(denied)
			w.Observe(near)
		}
		if a := w.result(Query{Limit: 100}); a.Limited[0].Attributes == nil && a.Limited[99].Attributes == nil {
			t.Errorf("minute %d: no attributes", minute)
		} else if minute == 0 && (len(a.Near[0].Attributes) != maxAttributes || len(a.Near[0].Attributes["path"]) != maxValue) {
			t.Errorf("%d attributes, path of %d bytes", len(a.Near[0].Attributes), len(a.Near[0].Attributes["path"]))
		}
		w.advance(time.Minute)
	}
	w.checkMemory(t, heap()-before, 1<<20)
	r := w.rules["long"]
	names := r.names + r.sketch.names
	for _, n := range r.near {
		names -= len(n.name)
	}
	for i := range r.sketch.entries {
		names -= len(r.sketch.entries[i].name)
	}
	for _, p := range r.past {
		names -= p.names
	}
	if len(r.past) != KeptMinutes-1 || names != 0 {
		t.Errorf("%d previous minutes, names off by %d bytes", len(r.past), names)
	}
}

// TestMemoryOfAllRules checks that rules with few denials take little memory, that the least recently used rules are evicted,
// and that the result reports it.
func TestMemoryOfAllRules(t *testing.T) {
	w := newWorld(Options{})
	before := heap()
	for i := range 10_000 {
		w.deny("rule "+strconv.Itoa(i), 1, 1)
		w.deny("rule "+strconv.Itoa(i), 2, 1)
		w.advance(time.Microsecond)
	}
	w.checkMemory(t, heap()-before, 10_000*1_000)
	if a := w.result(Query{}); a.Incomplete {
		t.Error("data was evicted")
	}
	w.maxBytes = w.bytes.Load()
	w.advance(time.Second)
	w.deny("rule 0", 1, 1) // was the least recently used until now
	for i := range 200 {
		w.advance(time.Second)
		w.deny("new", i, 1)
	}
	if a := w.result(Query{WindowSeconds: 600}); !a.Incomplete || w.bytes.Load() > w.maxBytes {
		t.Errorf("incomplete %v, %d bytes of %d", a.Incomplete, w.bytes.Load(), w.maxBytes)
	}
	for rule, want := range map[string]int{"rule 0": 2, "rule 1": 0, "rule 9999": 2, "new": 100} {
		if a := w.result(Query{WindowSeconds: 600, Rule: rule, Limit: 100}); len(a.Limited) != want {
			t.Errorf("%s has %d rows, want %d", rule, len(a.Limited), want)
		}
	}
	w.advance(20 * time.Minute)
	if w.result(Query{WindowSeconds: 600}).Incomplete {
		t.Error("still incomplete after the window")
	}
	total := int64(0)
	for _, r := range w.rules {
		total += r.bytes
	}
	if total != w.bytes.Load() {
		t.Errorf("rules have %d bytes, together %d", total, w.bytes.Load())
	}
}
