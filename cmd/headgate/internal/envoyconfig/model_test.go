package envoyconfig

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/ruledoc"
)

// entry is one entry of a descriptor to check.
type entry struct{ key, value string }

// entriesOf parses "k=v,k=".
func entriesOf(text string) (all []entry) {
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		all = append(all, entry{key, value})
	}
	return all
}

// attributesOf returns the attributes of a descriptor sent by Envoy.
func attributesOf(domain string, entries []entry) headgate.Attributes {
	a := headgate.Attributes{"domain": domain}
	var keys []string
	times := map[string]int{}
	for _, e := range entries {
		keys = append(keys, e.key)
		name := "descriptor." + e.key
		if times[e.key]++; times[e.key] > 1 {
			name += "." + strconv.Itoa(times[e.key])
		}
		a[name] = e.value
	}
	a["entries"] = strings.Join(keys, ",")
	return a
}

// importConfigs imports configs and runs the tests that the import wrote.
func importConfigs(t *testing.T, configs ...string) *Imported {
	t.Helper()
	var sources []yamldoc.Source
	for i, c := range configs {
		sources = append(sources, yamldoc.Source{Name: fmt.Sprintf("%d.yaml", i), Data: []byte(c)})
	}
	imported, err := Import(sources...)
	if err != nil {
		t.Fatal(err)
	}
	runTests(t, imported)
	return imported
}

// limiterOf returns a limiter with the imported rules.
func limiterOf(t *testing.T, imported *Imported) *headgate.Limiter {
	t.Helper()
	document, err := ruledoc.Parse("rules.yaml", []byte(Rules(imported.Files...)))
	if err != nil {
		t.Fatalf("%v\n%s", err, Rules(imported.Files...))
	}
	limiter, err := headgate.New(memstore.New(memstore.Options{}), document.Source...)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// place is a descriptor in the model. Its limit, if it has one, is identified by its number.
type place struct {
	key, value string
	limit      int
	unlimited  bool
	shadow     bool
	shares     bool
	below      []*place
}

// like reports whether a pattern matches a value. Each * matches any text.
func like(pattern, value string) bool {
	if pattern == "" {
		return value == ""
	}
	if pattern[0] == '*' {
		return like(pattern[1:], value) || value != "" && like(pattern, value[1:])
	}
	return value != "" && value[0] == pattern[0] && like(pattern[1:], value[1:])
}

// find implements the documented lookup of a descriptor: at each level it takes the place with the exact value, else the first place
// with a matching pattern, else the place with the key alone. The limit applies if the entries end there. The counter consists of all
// values; shared values are counted by their pattern.
func find(level []*place, entries []entry) (limit *place, counter string) {
	for i, e := range entries {
		var found *place
		rank := 0
		for _, p := range level {
			switch {
			case p.key != e.key:
			case p.value == e.value && e.value != "":
				found, rank = p, 3
			case strings.Contains(p.value, "*") && like(p.value, e.value) && rank < 2:
				found, rank = p, 2
			case p.value == "" && rank < 1:
				found, rank = p, 1
			}
		}
		if found == nil {
			return nil, ""
		}
		value := e.value
		if found.shares {
			value = found.value
		}
		counter += fmt.Sprintf("%q=%q,", e.key, value)
		if i == len(entries)-1 && found.limit > 0 && !found.unlimited {
			return found, counter
		}
		level = found.below
	}
	return nil, ""
}

// TestModel compares the rules of random configs with a model of the documentation of envoyproxy/ratelimit: which limit applies to
// random descriptors, and which of them share a counter.
func TestModel(t *testing.T) {
	t.Parallel()
	const configs, descriptors = 20, 300
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	applied := 0
	for range configs {
		m := maker{random: random}
		top := m.level(0)
		var b strings.Builder
		b.WriteString("domain: d\ndescriptors:\n")
		write(&b, top, "  ")
		imported := importConfigs(t, b.String())
		if strings.Contains(fmt.Sprint(imported.NotConverted), "no rule created") {
			continue // more wildcards than a condition can exclude, which the import reports
		}
		limiter := limiterOf(t, imported)
		counters := map[string]string{}
		for range descriptors {
			var entries []entry
			for range 1 + random.IntN(3) {
				entries = append(entries, entry{one(random, "a", "b"), one(random, "", "x", "xy", "xyz", "xzz", "xyyz", "z", "w")})
			}
			limit, counter := find(top, entries)
			d, err := limiter.Check(t.Context(), headgate.Request{Attributes: attributesOf("d", entries)})
			if err != nil {
				t.Fatal(err)
			}
			if problem := compare(limit, counter, &d, counters); problem != "" {
				t.Fatalf("seed %d: %v: %s\n%s", seed, entries, problem, b.String())
			}
			applied += len(d.Limits)
		}
	}
	if applied < configs*descriptors/10 {
		t.Errorf("only %d limits applied: too few for a meaningful test", applied)
	}
}

// compare returns how a decision differs from the model. counters maps the counters of the model to those of the limiter, and back.
func compare(limit *place, counter string, d *headgate.Decision, counters map[string]string) string {
	if limit == nil || len(d.Limits) != 1 {
		if limit == nil && len(d.Limits) == 0 && d.Allowed {
			return ""
		}
		return fmt.Sprintf("want %+v, got %+v", limit, d.Limits)
	}
	l := &d.Limits[0]
	if l.Limit.Count != int64(limit.limit) || l.Limit.Align != headgate.OnClock || l.Enforced == limit.shadow {
		return fmt.Sprintf("want %+v, got %+v", limit, l)
	}
	ours := fmt.Sprintf("%x %v", l.Subject, l.Counter)
	for from, to := range map[string]string{"theirs " + counter: ours, "ours " + ours: counter} {
		if before, known := counters[from]; known && before != to {
			return fmt.Sprintf("the counter of %s is %s, and was %s", from, to, before)
		}
		counters[from] = to
	}
	return ""
}

// maker generates random configs.
type maker struct {
	random *rand.Rand
	limits int
}

func (m *maker) level(depth int) (level []*place) {
	seen := map[entry]bool{}
	for range m.random.IntN(7) + 2 - depth {
		p := &place{
			key: one(m.random, "a", "b"), value: one(m.random, "", "", "x", "xy", "x*", "xy*", "xyz*", "*", "*z", "x*z", "x*y*", "xy*y"),
			unlimited: m.random.IntN(6) == 0, shadow: m.random.IntN(4) == 0,
		}
		if seen[entry{p.key, p.value}] {
			continue
		}
		seen[entry{p.key, p.value}] = true
		p.shares = strings.Contains(p.value, "*") && m.random.IntN(2) == 0
		if m.random.IntN(4) > 0 {
			m.limits++
			p.limit = m.limits
		}
		if depth < 2 && m.random.IntN(2) == 0 {
			p.below = m.level(depth + 1)
		}
		level = append(level, p)
	}
	return level
}

func write(b *strings.Builder, level []*place, indent string) {
	for _, p := range level {
		fmt.Fprintf(b, "%s- key: %s\n%[1]s  value: %[3]q\n", indent, p.key, p.value)
		fmt.Fprintf(b, "%s  shadow_mode: %t\n%[1]s  share_threshold: %[3]t\n", indent, p.shadow, p.shares)
		if p.limit > 0 && p.unlimited {
			fmt.Fprintf(b, "%s  rate_limit: {unlimited: true}\n", indent)
		} else if p.limit > 0 {
			fmt.Fprintf(b, "%s  rate_limit: {unit: day, requests_per_unit: %d}\n", indent, p.limit)
		}
		if len(p.below) > 0 {
			fmt.Fprintf(b, "%s  descriptors:\n", indent)
			write(b, p.below, indent+"    ")
		}
	}
}

func one(random *rand.Rand, values ...string) string { return values[random.IntN(len(values))] }
