package pathreading

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// pieces are the parts of random paths.
var pieces = []string{
	"/", "/", "/", "/", "a", "b", "login", ".", "..", ";", ";x", "%2f", "%2F", "%5c", `\`, "%2e", "%252e", "%00", "%3f", "%23", "#", "%25", "%61", "%",
	"%20", "%c3%a9", "%3b", "%2", "%0a", "%0A", "%ff", "\n", "\xff", " ",
}

func randomPath(random *rand.Rand, longest int) string {
	var b strings.Builder
	b.WriteString([]string{"/", "/", "/", "//", "", `\`}[random.IntN(6)])
	for range random.IntN(longest) {
		b.WriteString(pieces[random.IntN(len(pieces))])
	}
	return b.String()
}

// TestOfHasEveryStyle compares the fast paths with all styles: a path considered normal or plain has one reading in all styles, and no
// reading of another path is missing.
func TestOfHasEveryStyle(t *testing.T) {
	t.Parallel()
	quick, longest := 0, 0
	for seed := range uint64(20_000) {
		raw := randomPath(rand.New(rand.NewPCG(seed, 1)), 12)
		path, others := Of(raw)
		if isNormal(raw) || isPlain(raw) {
			quick++
		}
		longest = max(longest, len(others))
		r := reader{raw: raw}
		for i, s := range slices.Concat([]style{lenient}, list[:]) {
			if reading := r.read(s); reading != path && !slices.Contains(others, shortenOther(reading)) {
				t.Fatalf("seed %d: %q in style %d is %q, which is none of %q and %q", seed, raw, i, reading, path, others)
			}
		}
	}
	t.Logf("%d of 20000 paths were considered normal or plain; one had %d other readings", quick, longest)
	if quick < 500 || longest < 6 || longest > MaxOthers {
		t.Error("too few paths of either kind, or too many readings")
	}
}

// TestReadingsThatResolveNothing tests that readings of servers that resolve nothing have the same first reading, whatever a client
// appends to the path.
func TestReadingsThatResolveNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		raw := randomPath(rand.New(rand.NewPCG(seed, 2)), 12)
		path, _ := Of(raw)
		if again := Lenient(path); again != path {
			t.Fatalf("seed %d: %q: %q becomes %q", seed, raw, path, again)
		}
		r := reader{raw: raw}
		for _, s := range list {
			if s.dots || s.firstParameter || s.parameters != keepParameters || strings.Contains(raw, "%%") || strings.Contains(raw, "%2%") {
				continue // an encoding completed by another is invalid, and no server decodes it
			}
			if reading := r.read(s); Lenient(reading) != path {
				t.Fatalf("seed %d: %q: reading %q has first reading %q, want %q", seed, raw, reading, Lenient(reading), path)
			}
		}
	}
}

func TestLongReadings(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3000)
	for name, test := range map[string]struct {
		raw  string
		want func(reading string) bool
	}{
		// Templates that count segments must still match, with their literals.
		"long segments": {"/search/" + long + "/now/" + long + "/..", func(r string) bool {
			segments := strings.Split(r, "/")
			return len(segments) == 6 && segments[1] == "search" && segments[3] == "now" && segments[5] == ".."
		}},
		"many segments": {"/api/v1/." + strings.Repeat("/abc", 2000), func(r string) bool {
			return strings.HasPrefix(r, "/api/v1/./abc/") && strings.Count(r, "/") == 33
		}},
		"many long segments": {"/api/v1" + strings.Repeat("/"+strings.Repeat("y", 60), 30) + "/..", func(r string) bool {
			return strings.HasPrefix(r, "/api/v1/") && strings.Count(r, "/") == 33
		}},
		"long, but not for long": {"/" + long + "%3f/../login", func(r string) bool { return r == "/login" }},
	} {
		path, others := Of(test.raw)
		if len(path) > Max || !slices.ContainsFunc(others, test.want) {
			t.Errorf("%s: %.100q, %.2000q", name, path, others)
		}
		for _, other := range others {
			if len(other) > maxOther {
				t.Errorf("%s: a reading of %d bytes", name, len(other))
			}
		}
	}
}
