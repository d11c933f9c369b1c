package headgate

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestTableIsAMap compares the table with a map through random changes, on few subjects with many exceptions each, so that slots
// collide and entries move when others are removed.
func TestTableIsAMap(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	const now = 1000
	var tested table[override]
	expected := map[Subject]int64{}
	for i := range 300_000 {
		key := exceptionKey(SubjectOf(strconv.Itoa(random.IntN(40))), exceptionOf("rule", strconv.Itoa(random.IntN(300))))
		switch random.IntN(3) {
		case 0:
			expires := int64(0)
			if random.IntN(2) == 0 {
				expires = int64(900 + random.IntN(200))
			}
			tested.set(key, override{exception: exception{expires: expires}}, now)
			expected[key] = expires
		case 1:
			tested.remove(key)
			delete(expected, key)
		case 2:
			got, ok := tested.get(key)
			want, there := expected[key]
			alive := there && !exception{expires: want}.expired(now)
			if (ok && !got.expired(now)) != alive || alive && got.expires != want {
				t.Fatalf("step %d: got %v, %v, want %v, %v", i, got.expires, ok, want, alive)
			}
		}
	}
	alive := 0
	for _, expires := range expected {
		if !(override{exception: exception{expires: expires}}).expired(now) {
			alive++
		}
	}
	if n := tested.len(); n < alive || n > len(expected) {
		t.Errorf("%d entries; %d were set and %d have not expired", n, len(expected), alive)
	}
}
