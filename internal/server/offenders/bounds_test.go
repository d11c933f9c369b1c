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

// A few subjects that are denied often among a million that are not: they are found, with less than a megabyte.
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
			seen := observation("zipf", false, 0)
			before := heap()
			for range events {
				i := int(random.Uint64())
				truth[i]++
				seen.Decision.Limits[0].Subject = subject(i)
				w.Note(seen)
			}
			w.takes(t, heap()-before, 1<<20)
			a := w.ask(Query{Most: 25})
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
					t.Errorf("number %d, denied %d times, is not there", i, n)
				}
			}
		})
	}
}

// Everybody in a sketch was counted as it says, and nobody else was denied more often than the least of them.
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
	least := s.entries[s.least()].denied
	total := int64(0)
	for i := range s.entries {
		e := &s.entries[i]
		total += e.denied
		if n := truth[e.subject]; n > e.denied || n < e.denied-e.err || e.denied < least || !s.has(e.subject) {
			t.Errorf("%+v, but it was %d, the least has %d, and it is found: %v", e, n, least, s.has(e.subject))
		}
	}
	for who, n := range truth {
		if !s.has(who) && n > least {
			t.Errorf("%v was denied %d times and is not there, where the least has %d", who, n, least)
		}
	}
	if len(s.entries) != maxEntries || total != 200_000 {
		t.Errorf("%d entries, %d denials", len(s.entries), total)
	}
}

// takes fails if the heap has grown by more than most, or than is reckoned with, some rounding apart.
func (w *world) takes(t *testing.T, bytes, most int64) {
	t.Helper()
	reckoned := w.bytes.Load()
	t.Logf("%d bytes, reckoned %d", bytes, reckoned)
	if bytes > most || reckoned > most || bytes > reckoned+reckoned/20 {
		t.Errorf("%d bytes, reckoned %d, want at most %d and as reckoned", bytes, reckoned, most)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A rule takes at most a megabyte, though all its subjects have long names and all its minutes are full.
func TestMostOfOneRule(t *testing.T) {
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
			near.Decision.Limits[0].Remaining = int64(20 - i*20/(3*maxEntries)) // nearer and nearer
			w.Note(denied)
			w.Note(denied)
			w.Note(near)
		}
		if a := w.ask(Query{Most: 100}); a.Limited[0].Attributes == nil && a.Limited[99].Attributes == nil {
			t.Errorf("minute %d: nobody has a name", minute)
		} else if minute == 0 && (len(a.Near[0].Attributes) != maxAttributes || len(a.Near[0].Attributes["path"]) != maxValue) {
			t.Errorf("%d attributes, path of %d bytes", len(a.Near[0].Attributes), len(a.Near[0].Attributes["path"]))
		}
		w.pass(time.Minute)
	}
	w.takes(t, heap()-before, 1<<20)
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
		t.Errorf("%d minutes before, %d bytes of names that there are not", len(r.past), names)
	}
}

// Many rules that deny hardly anybody take little, and if they take too much the quiet ones go. That is said.
func TestMostOfAllRules(t *testing.T) {
	w := newWorld(Options{})
	before := heap()
	for i := range 10_000 {
		w.deny("rule "+strconv.Itoa(i), 1, 1)
		w.deny("rule "+strconv.Itoa(i), 2, 1)
		w.pass(time.Microsecond)
	}
	w.takes(t, heap()-before, 10_000*1_000)
	if a := w.ask(Query{}); a.Incomplete {
		t.Error("something was let go")
	}
	w.most = w.bytes.Load()
	w.pass(time.Second)
	w.deny("rule 0", 1, 1) // was quiet longest until now
	for i := range 200 {
		w.pass(time.Second)
		w.deny("new", i, 1)
	}
	if a := w.ask(Query{WindowSeconds: 600}); !a.Incomplete || w.bytes.Load() > w.most {
		t.Errorf("incomplete %v, %d bytes of %d", a.Incomplete, w.bytes.Load(), w.most)
	}
	for rule, want := range map[string]int{"rule 0": 2, "rule 1": 0, "rule 9999": 2, "new": 100} {
		if a := w.ask(Query{WindowSeconds: 600, Rule: rule, Most: 100}); len(a.Limited) != want {
			t.Errorf("%s has %d rows, want %d", rule, len(a.Limited), want)
		}
	}
	w.pass(20 * time.Minute)
	if w.ask(Query{WindowSeconds: 600}).Incomplete {
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
