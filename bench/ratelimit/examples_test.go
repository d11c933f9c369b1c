package ratelimit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/internal/testenv"
)

// TestDocumentedExamples has the configs in the documentation of envoyproxy/ratelimit, and one of ours with all that is
// odd. Both servers load them, and each limit is used up, missed by little, and asked together with each other.
func TestDocumentedExamples(t *testing.T) {
	files, err := filepath.Glob("../../cmd/headgate/internal/envoyconfig/testdata/*.txt")
	if err != nil || len(files) < 16 {
		t.Fatal(files, err)
	}
	var trials []*trial
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		config, _, _ := strings.Cut(string(text), "-----\n")
		_, config, _ = strings.Cut(config, "\n") // its domain
		c := &trial{name: strings.TrimSuffix(filepath.Base(file), ".txt"), config: config, top: placesOf(t, config)}
		c.requests = useUp(c.top)
		trials = append(trials, c)
	}
	w := newWorld(t, testenv.BuildHeadgate(t), testenv.Start(t, testenv.Redis).Addr(), trials, map[string]int{})
	for _, c := range trials {
		w.play(c)
	}
	t.Log(w.seen)
}

// useUp asks for each limit more often than it allows, then for what is next to it, and for each pair.
func useUp(top []*place) (all []*rlsv3.RateLimitRequest) {
	var limits [][]string
	ask := func(hits int64, pairs ...[]string) {
		r := &rlsv3.RateLimitRequest{HitsAddend: uint32(hits)}
		for _, p := range pairs {
			r.Descriptors = append(r.Descriptors, descriptor(p...))
		}
		all = append(all, r)
	}
	each(nil, top, func(way []*place) {
		l := way[len(way)-1].limit
		if l == nil {
			return
		}
		limits = append(limits, sample(way, "one"))
		for _, value := range []string{"one", "two"} {
			pairs := sample(way, value)
			left := l.requests
			if left > 10 {
				ask(left-3, pairs)
				left = 3
			}
			for range left + 2 {
				ask(0, pairs)
			}
			last := len(pairs) - 1
			ask(0, append(pairs[:last:last], pairs[last]+"~"))
			ask(0, append(pairs[:last-1:last-1], pairs[last-1]+"~", pairs[last]))
			ask(0, append(pairs[:len(pairs):len(pairs)], "more", "x"))
			ask(0, append([]string{"before", "x"}, pairs...))
			ask(0, append([]string{"", ""}, pairs[2:]...))
			if len(pairs) > 2 {
				ask(0, pairs[:last-1])
			}
		}
	})
	for i := range limits {
		for j := range i + 1 {
			ask(0, limits[i], limits[j])
		}
	}
	return all
}

// sample has keys and values that go a way.
func sample(way []*place, value string) (pairs []string) {
	for _, p := range way {
		prefix, wild := strings.CutSuffix(p.value, "*")
		if p.value == "" || wild {
			prefix += value
		}
		pairs = append(pairs, strings.TrimSuffix(p.key, "*"), prefix)
	}
	return pairs
}
