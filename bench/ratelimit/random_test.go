package ratelimit

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/internal/testenv"
)

var (
	cases = flag.Int("cases", 50, "number of random configs to compare")
	seed  = flag.Uint64("seed", 0, "random seed of the configs; 0 chooses one")
)

// TestRandomConfigs compares random configs and requests. Each row of the table must make a difference.
func TestRandomConfigs(t *testing.T) {
	const perRound, requests = 50, 30
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d -cases %d", *seed, *cases)
	random := generator{rand.New(rand.NewPCG(*seed, 1))}
	binary, redis := testenv.BuildHeadgate(t), testenv.Start(t, testenv.Redis).Addr()
	differences := map[string]int{}
	for first := 0; first < *cases; first += perRound {
		t.Run(fmt.Sprint("from ", first), func(t *testing.T) {
			var testCases []*testCase
			for i := range min(perRound, *cases-first) {
				c := &testCase{name: fmt.Sprintf("case%d", first+i), config: random.config()}
				c.top = parseConfig(t, c.config)
				for range requests {
					c.requests = append(c.requests, random.request(c.top))
				}
				testCases = append(testCases, c)
			}
			w := newWorld(t, binary, redis, testCases, differences)
			for _, c := range testCases {
				w.run(c)
			}
		})
	}
	t.Log(differences)
	for _, row := range documentedRows(t) {
		if differences[row] == 0 && !t.Failed() {
			t.Errorf("row %s of the table made no difference", row)
		}
	}
}

// generator makes random configs and requests.
type generator struct{ *rand.Rand }

func (g generator) one(in int) bool { return g.IntN(in) == 0 }

func pick[T any](g generator, values ...T) T { return values[g.IntN(len(values))] }

// Keys and values are few, so that they collide, and some are concatenations of others.
func (g generator) key() string { return pick(g, "a", "a", "b", "b", "path", "a_x") }

func (g generator) value() string { return pick(g, "", "x", "x", "y", "y", "xy", "z", "x_y", "x_b_y") }

func (g generator) config() string {
	var b strings.Builder
	b.WriteString("descriptors: [\n")
	g.level(&b, "  ", 0)
	b.WriteString("]\n")
	return b.String()
}

func (g generator) level(b *strings.Builder, indent string, depth int) {
	differences := map[string]bool{}
	for range 5 - depth + g.IntN(3) {
		p := node{key: g.key(), value: pick(g, "", "", "", "x*", "xy*", "*", g.value())}
		if g.one(25) {
			p.key, p.value = pick(g, "b*", "b,b"), ""
		}
		if differences[p.name()] {
			continue
		}
		differences[p.name()] = true
		fmt.Fprintf(b, "%s{key: %q, value: %q", indent, p.key, p.value)
		if _, wild := p.wild(); wild && g.one(2) {
			b.WriteString(", share_threshold: true")
		}
		for _, key := range []string{"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric"} {
			if g.one(6) {
				fmt.Fprintf(b, ", %s: true", key)
			}
		}
		if !g.one(4) {
			fmt.Fprintf(b, ", rate_limit: {%s}", g.limit())
		}
		if depth < 2 && g.one(2) {
			b.WriteString(", descriptors: [\n")
			g.level(b, indent+"  ", depth+1)
			b.WriteString(indent + "]")
		}
		b.WriteString("},\n")
	}
}

func (g generator) limit() string {
	var b strings.Builder
	if g.one(8) {
		b.WriteString("unlimited: true")
	} else {
		unit := pick(g, "second", "minute", "MINUTE", "hour", "day", "week", "month", "year")
		fmt.Fprintf(&b, "unit: %s, requests_per_unit: %d", unit, pick(g, 0, 1, 2, 3, 4, 5, 6, 10, 20, 2*maxUnits))
	}
	name := ""
	if g.one(3) {
		name = pick(g, "one", "two")
		b.WriteString(", name: " + name)
	}
	if other := pick(g, "one", "two"); g.one(5) && other != name {
		fmt.Fprintf(&b, ", replaces: [{name: %s}]", other)
	}
	return b.String()
}

func (g generator) request(top []*node) *rlsv3.RateLimitRequest {
	r := &rlsv3.RateLimitRequest{HitsAddend: pick[uint32](g, 0, 0, 0, 1, 2, 5)}
	count := pick(g, 1, 1, 2, 3, 4)
	if g.one(200) {
		count = 65
	}
	for range count {
		r.Descriptors = append(r.Descriptors, g.descriptor(top))
	}
	return r
}

// descriptor returns a descriptor that mostly matches a path of the config.
func (g generator) descriptor(level []*node) *ratelimitv3.RateLimitDescriptor {
	var pairs []string
	for !g.one(40) { // otherwise it has no entries
		p := &node{key: g.key()}
		if len(level) > 0 && !g.one(6) {
			p = pick(g, level...)
		}
		pairs = append(pairs, strings.TrimSuffix(p.key, "*"), g.matching(p))
		level = p.below
		if len(pairs) == 6 || g.one(6) || len(level) == 0 || p.limit != nil && g.one(2) {
			break
		}
	}
	d := descriptor(pairs...)
	if g.one(2) {
		d.HitsAddend = wrapperspb.UInt64(pick[uint64](g, 0, 0, 0, 0, 0, 0, 1, 3, 7, maxUnits/2, maxUnits, 2*maxUnits))
	}
	d.IsNegativeHits = g.one(15)
	if g.one(30) {
		d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: pick[uint32](g, 0, 2, 10), Unit: typev3.RateLimitUnit(1 + g.IntN(6)),
		}
	}
	return d
}

// matching returns a value that mostly matches the node.
func (g generator) matching(p *node) string {
	prefix, wild := strings.CutSuffix(p.value, "*")
	switch {
	case wild:
		return prefix + pick(g, "", "1", "2")
	case p.value == "" || g.one(10):
		return g.value()
	}
	return p.value
}
