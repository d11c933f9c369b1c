package headgate_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// generator makes random limits, rules, requests and charges, from a seed in a test or from the fuzzer's bytes in a fuzz target.
type generator struct{ *rand.Rand }

func newGenerator(seed, stream uint64) generator {
	return generator{rand.New(rand.NewPCG(seed, stream))}
}

// fuzzed returns a generator that uses the fuzzer's bytes, and then a fixed seed.
func fuzzed(choices []byte) generator { return generator{rand.New(&tape{choices, rand.NewPCG(0, 0)})} }

type tape struct {
	choices []byte
	rest    rand.Source
}

func (t *tape) Uint64() uint64 {
	if len(t.choices) < 8 {
		return t.rest.Uint64()
	}
	n := binary.LittleEndian.Uint64(t.choices)
	t.choices = t.choices[8:]
	return n
}

// addChoices adds seed inputs for the fuzzer.
func addChoices(f *testing.F) {
	g := newGenerator(2, 0)
	for range 20 {
		var choices []byte
		for range 256 {
			choices = binary.LittleEndian.AppendUint64(choices, g.Uint64())
		}
		f.Add(choices)
	}
}

// oneOf returns one of the values.
func oneOf[T any](g generator, values ...T) T { return values[g.IntN(len(values))] }

// some returns one or two of the values.
func some(g generator, values []string) []string {
	picked := []string{oneOf(g, values...), oneOf(g, values...)}
	return picked[:1+g.IntN(2)]
}

// chance returns true once in so many calls.
func (g generator) chance(in int) bool { return g.IntN(in) == 0 }

// number returns a number up to a limit, small ones as often as large ones.
func (g generator) number(limit int64) int64 { return (g.Int64() >> (8 * g.IntN(8))) % (limit + 1) }

// limit returns a valid limit.
func (g generator) limit() headgate.Limit {
	l := headgate.Limit{Algorithm: headgate.Algorithm(g.IntN(5))}
	g.renumber(&l)
	switch l.Algorithm {
	case headgate.SlidingWindow:
		l.Align = headgate.Align(g.IntN(3))
	case headgate.FixedWindow:
		switch kind := g.IntN(8); {
		case kind < 3:
			l.Align = headgate.Align(kind)
		default:
			l.Window = 0
			l.Calendar = headgate.Calendar(kind - 2)
			l.TimeZone = oneOf(g, unusualZones()...)
			g.renumber(&l)
		}
	}
	return l
}

// renumber changes a limit's numbers, but not its algorithm, which would start another counter.
func (g generator) renumber(l *headgate.Limit) {
	was := *l
	maxCount := int64(headgate.MaxCost)
	if l.Algorithm == headgate.SlidingLog {
		maxCount = headgate.MaxLogCount
	}
	l.Count = 1 + oneOf(g, 0, 1, 2, 6, 9, 99, 999, 1_000_000, 999_999_936, maxCount-1, g.number(maxCount-1), l.Count, 2*l.Count)%maxCount
	switch l.Calendar {
	case headgate.NoCalendar:
		l.Window = oneOf(g, time.Second, time.Minute, time.Hour, 24*time.Hour, 30*24*time.Hour, 366*24*time.Hour, time.Millisecond,
			1001*time.Microsecond, 999_999*time.Microsecond, 7*time.Second, 1500*time.Millisecond, was.Window,
			time.Millisecond+time.Duration(g.number(40_000_000))*time.Microsecond)
	case headgate.Week:
		l.AnchorDay = g.IntN(8)
	case headgate.Month:
		l.AnchorDay = g.IntN(32)
	}
	if l.Algorithm == headgate.TokenBucket {
		l.Burst = oneOf(g, 0, 1, l.Count, min(2*l.Count, maxCount), g.number(maxCount))
	}
	if l.Validate() == nil {
		return
	}
	// Not every rate can be counted exactly, or refills within ten years.
	if l.Window, l.Burst = time.Minute, 0; was.Count > 0 {
		*l = was
	}
}

// wild returns any number, preferably one at which something overflows.
func (g generator) wild() int64 {
	n := oneOf(g, 0, 1, -1, 7, 1_000, 1_000_000, headgate.MaxCost, headgate.MaxCost+1, 1<<52, 1<<53, 1_700_000_000, 1_700_000_000_000_000,
		4_000_000_000_000_000, math.MaxInt64/1_000_000, math.MaxInt64, math.MinInt64, g.number(math.MaxInt64-1), -g.number(math.MaxInt64-1))
	return n + oneOf(g, int64(0), 0, 0, 1, -1, 3)
}

var (
	pathPieces = []string{"a", "b", "C", "*", "{id}"}
	hostNames  = []string{"x.example.com", "example.com", "a.b.example.com", "y.org"}
	hostRules  = []string{"x.example.com", "*.example.com", "*.b.example.com", "y.org"}
	tenants    = []string{"t1", "t2", "t3", "t33"}
	addresses  = []string{"10.0.0.1", "10.1.0.1", "192.0.2.7", "2001:db8:1:2::/64", "2001:db8::1", "nonsense"}
	networks   = []string{"10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32", "2001:db8::/32", "2001:db8:1:2::/64", "0.0.0.0/0"}
	verbs      = []string{"GET", "POST", "PUT"}
)

func (g generator) template() string {
	var b strings.Builder
	for range g.IntN(4) {
		b.WriteString("/" + oneOf(g, pathPieces...))
	}
	if g.chance(3) || b.Len() == 0 {
		b.WriteString("/**")
	}
	return b.String()
}

func (g generator) rules() []headgate.Rule {
	var rules []headgate.Rule
	for i := range 1 + g.IntN(12) {
		r := headgate.Rule{
			ID: fmt.Sprintf("r%d", i), By: []string{oneOf(g, "ip", "tenant")}, Limit: headgate.PerMinute(1),
			Priority: max(0, g.IntN(6)-3),
			Match:    headgate.Match{Attributes: map[string]headgate.Pattern{}},
		}
		if g.chance(6) {
			r.When = headgate.Condition{Text: "even", Attributes: []string{"method", "path"}, Holds: evenLength}
		}
		if g.chance(10) {
			r.Mode = headgate.Off
		}
		add := func(odds int, name string, pattern func() headgate.Pattern) {
			if g.chance(odds) {
				r.Match.Attributes[name] = pattern()
			}
		}
		add(2, "path", func() headgate.Pattern {
			r.Match.IgnoreCase = g.chance(3)
			p := headgate.Pattern{}
			if g.IntN(5) > 0 {
				for range 1 + g.IntN(2) {
					p.Values = append(p.Values, g.template())
				}
			}
			if g.chance(4) || p.Values == nil {
				p.Not = []string{g.template()}
			}
			return p
		})
		add(3, "method", func() headgate.Pattern { return headgate.OneOf(some(g, verbs)...) })
		add(4, "host", func() headgate.Pattern {
			return headgate.Pattern{Values: some(g, hostRules), Not: some(g, hostRules)[:g.IntN(2)]}
		})
		add(3, "tenant", func() headgate.Pattern {
			switch g.IntN(5) {
			case 0:
				return headgate.IsAbsent()
			case 1:
				return headgate.IsPresent()
			case 2:
				return headgate.HasPrefix("t3")
			case 3:
				return headgate.NoneOf(some(g, tenants)...)
			}
			return headgate.OneOf(some(g, tenants)...)
		})
		add(4, "ip", func() headgate.Pattern {
			p := headgate.InCIDR(netip.MustParsePrefix(oneOf(g, networks...)))
			if g.chance(3) {
				p.Prefix = "10."
			}
			return p
		})
		add(8, "client", func() headgate.Pattern { return headgate.OneOf(some(g, addresses)...) })
		rules = append(rules, r)
	}
	return rules
}

func (g generator) attributes() headgate.Attributes {
	a := headgate.Attributes{}
	maybe := func(odds int, name string, values []string) {
		if g.IntN(odds) > 0 {
			a[name] = oneOf(g, values...)
		}
	}
	path := func() string {
		var b strings.Builder
		for range g.IntN(5) {
			b.WriteString("/" + oneOf(g, "a", "b", "C", "c", "A", "zz"))
		}
		return "/" + strings.TrimPrefix(b.String(), "/")
	}
	if g.IntN(8) > 0 {
		a["path"] = path()
		if g.chance(5) {
			others := make([]string, 1+g.IntN(4))
			for i := range others {
				others[i] = path()
			}
			a[headgate.OtherPath] = strings.Join(others, "?")
		}
	}
	maybe(8, "method", verbs)
	if a["method"] != "" && g.chance(5) {
		a[headgate.OtherMethod] = oneOf(g, append([]string{headgate.AnyMethod}, verbs...)...)
	}
	maybe(4, "host", hostNames)
	maybe(3, "tenant", tenants)
	maybe(4, "ip", addresses)
	maybe(6, "api_key", addresses)
	for i := range g.IntN(30) {
		a[fmt.Sprintf("header.x-%d", i)] = "noise"
	}
	return a
}
