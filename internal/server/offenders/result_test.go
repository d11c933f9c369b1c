package offenders

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

func within(t *testing.T, l Limited, truth int64) {
	t.Helper()
	if truth > l.Denied || truth < l.Denied-l.Error {
		t.Errorf("%+v, want %d within its bounds", l, truth)
	}
}

// TestMerge checks that the merged counts of three nodes over several minutes are within their bounds for all subjects,
// listed or not, even if they are merged in steps.
func TestMerge(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	seeds := uint64(12)
	if testenv.Race() {
		seeds = 4
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 5))
		type key struct {
			rule string
			who  int
		}
		truth := map[key]int64{}
		nodes := []*world{newWorld(Options{}), newWorld(Options{}), newWorld(Options{})}
		q := Query{WindowSeconds: 600, Limit: 1 + random.IntN(20)}
		for minute := range 3 {
			for i, w := range nodes {
				zipf := rand.NewZipf(random, 1.05, 10, 6_000)
				for range 15_000 {
					// Each node and minute has different top subjects.
					k := key{"r" + strconv.Itoa(random.IntN(1+int(seed)%4)), (int(zipf.Uint64()) + 40*minute + 25*i) % 6_000}
					truth[k]++
					w.deny(k.rule, k.who, 1)
				}
				w.advance(time.Minute)
			}
		}
		var results []Result
		for _, w := range nodes {
			results = append(results, roundTrip(t, w.Result(q)))
		}
		once := Merge(q, results)
		twice := Merge(q, []Result{Merge(Query{Limit: 100}, results[:2]), results[2]})
		for _, a := range []Result{once, twice} {
			if len(a.Limited) != q.Limit {
				t.Errorf("%d rows, want %d", len(a.Limited), q.Limit)
			}
			listed := map[key]bool{}
			for _, l := range a.Limited {
				s, _ := headgate.ParseSubject(l.Subject)
				k := key{l.Rule, int(binary.BigEndian.Uint64(s[8:]))}
				listed[k] = true
				within(t, l, truth[k])
			}
			for k, n := range truth {
				if !listed[k] && n > a.floor(k.rule) {
					t.Errorf("%v was denied %d times and is not listed; the floor is %d", k, n, a.floor(k.rule))
				}
			}
		}
	}
}

// TestMergeFloors checks that the floor of the rule, or else of all rules, is used for subjects that are not listed.
func TestMergeFloors(t *testing.T) {
	t.Parallel()
	names := make([]string, 4)
	for i := range names {
		s := subject(i)
		names[i] = s.String()
	}
	one := Result{Floor: 7, Floors: map[string]int64{"a": 10}, Limited: []Limited{
		{Rule: "a", Subject: names[1], Denied: 100, Error: 3},
		{Rule: "a", Subject: names[2], Denied: 10, Error: 10, Attributes: map[string]string{"user": "bob"}},
	}}
	two := Result{Floors: map[string]int64{"a": 20, "b": 0}, Limited: []Limited{
		{Rule: "a", Subject: names[2], Denied: 50}, {Rule: "b", Subject: names[3], Denied: 30, Error: 5},
	}}
	three := Result{}
	a := Merge(Query{}, []Result{one, two, three})
	expect(t, a, []string{"a/1 120-23", "a/2 60-10", "b/3 37-12"}, nil)
	if !maps.Equal(a.Floors, map[string]int64{"a": 30, "b": 7}) || a.Floor != 0 {
		t.Errorf("%+v", a)
	}
	if a.Limited[1].Attributes["user"] != "bob" {
		t.Errorf("the attributes are lost: %+v", a.Limited[1])
	}
	// Rows that are cut off are at or below the floor.
	a = Merge(Query{Limit: 1}, []Result{one, two})
	if !maps.Equal(a.Floors, map[string]int64{"a": 60}) || a.Floor != 60 {
		t.Errorf("%+v", a)
	}
}

func roundTrip(t *testing.T, a Result) (decoded Result) {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// TestMergeNear checks that the nearest of several nodes is used, and that a subject denied on one node is not near.
func TestMergeNear(t *testing.T) {
	t.Parallel()
	one, two := newWorld(Options{}), newWorld(Options{})
	one.use("a", 1, 10)
	two.use("a", 1, 5)
	one.use("a", 2, 0)
	two.deny("a", 2, 1)
	two.use("b", 2, 20)
	a := Merge(Query{}, []Result{one.Result(Query{}), two.Result(Query{})})
	expect(t, a, []string{"a/2 1-0"}, []string{"a/1 95/100", "b/2 80/100"})
}

// TestMergeInvalid checks that invalid rows of other nodes are ignored.
func TestMergeInvalid(t *testing.T) {
	t.Parallel()
	bad := Result{
		Limited: []Limited{{Subject: "?"}, {Subject: strings.Repeat("=", 22)}, {Subject: strings.Repeat("A", 44)}},
		Near:    []Near{{Subject: strings.Repeat("A", 22)}, {Subject: "x", Of: 1}},
	}
	expect(t, Merge(Query{}, []Result{bad, {}}), nil, nil)
	if text, err := json.Marshal(Merge(Query{}, nil)); err != nil || !strings.Contains(string(text), `"limited":[],"near":[]`) {
		t.Errorf("%s, %v", text, err)
	}
}
