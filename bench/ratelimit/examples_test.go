package ratelimit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/internal/testenv"
)

// TestDocumentedExamples uses the configs in the documentation of envoyproxy/ratelimit, and one of ours with all unusual cases.
// Both servers load them. Each limit is used up, requested with near misses, and requested together with each other limit.
func TestDocumentedExamples(t *testing.T) {
	files, err := filepath.Glob("../../cmd/headgate/internal/envoyconfig/testdata/*.txt")
	if err != nil || len(files) < 16 {
		t.Fatal(files, err)
	}
	var testCases []*testCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		config, _, _ := strings.Cut(string(text), "-----\n")
		_, config, _ = strings.Cut(config, "\n") // without the domain
		c := &testCase{name: strings.TrimSuffix(filepath.Base(file), ".txt"), config: config, top: parseConfig(t, config)}
		c.requests = useUp(c.top)
		testCases = append(testCases, c)
	}
	w := newWorld(t, testenv.BuildHeadgate(t), testenv.Start(t, testenv.Redis).Addr(), testCases, map[string]int{})
	for _, c := range testCases {
		w.run(c)
	}
	t.Log(w.differences)
}

// useUp returns requests that exceed each limit, near misses of it, and requests for each pair of limits.
func useUp(top []*node) (all []*rlsv3.RateLimitRequest) {
	var limits [][]string
	add := func(hits int64, pairs ...[]string) {
		r := &rlsv3.RateLimitRequest{HitsAddend: uint32(hits)}
		for _, p := range pairs {
			r.Descriptors = append(r.Descriptors, descriptor(p...))
		}
		all = append(all, r)
	}
	each(nil, top, func(path []*node) {
		l := path[len(path)-1].limit
		if l == nil {
			return
		}
		limits = append(limits, sample(path, "one"))
		for _, value := range []string{"one", "two"} {
			pairs := sample(path, value)
			left := l.requests
			if left > 10 {
				add(left-3, pairs)
				left = 3
			}
			for range left + 2 {
				add(0, pairs)
			}
			last := len(pairs) - 1
			add(0, append(pairs[:last:last], pairs[last]+"~"))
			add(0, append(pairs[:last-1:last-1], pairs[last-1]+"~", pairs[last]))
			add(0, append(pairs[:len(pairs):len(pairs)], "more", "x"))
			add(0, append([]string{"before", "x"}, pairs...))
			add(0, append([]string{"", ""}, pairs[2:]...))
			if len(pairs) > 2 {
				add(0, pairs[:last-1])
			}
		}
	})
	for i := range limits {
		for j := range i + 1 {
			add(0, limits[i], limits[j])
		}
	}
	return all
}

// sample returns the keys and values of entries that match a path.
func sample(path []*node, value string) (pairs []string) {
	for _, p := range path {
		prefix, wild := strings.CutSuffix(p.value, "*")
		if p.value == "" || wild {
			prefix += value
		}
		pairs = append(pairs, strings.TrimSuffix(p.key, "*"), prefix)
	}
	return pairs
}
