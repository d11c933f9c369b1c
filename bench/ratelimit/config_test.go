package ratelimit

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/yamldoc"
)

// node is a descriptor of a config.
type node struct {
	line                  int
	key, value            string
	limit                 *limit
	shadow, quota, shares bool
	below                 []*node
	skipped               bool // whether the import made no rule of it
}

type limit struct {
	requests, seconds int64
	unit              string
	unlimited         bool
	name              string
	replaces          []string
}

// seconds has the length of each unit.
var seconds = map[string]int64{
	"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 7 * 86400, "MONTH": 30 * 86400, "YEAR": 365 * 86400,
}

// name returns the string by which envoyproxy/ratelimit identifies a node.
func (p *node) name() string {
	if p.value == "" {
		return p.key
	}
	return p.key + "_" + p.value
}

// wild reports whether the node matches all names with a prefix, and returns the prefix.
func (p *node) wild() (prefix string, is bool) { return strings.CutSuffix(p.name(), "*") }

// parseConfig parses a config.
func parseConfig(t *testing.T, config string) []*node {
	t.Helper()
	documents, problems := yamldoc.Parse(yamldoc.Source{Name: "config", Data: []byte(config)})
	if len(problems) > 0 || len(documents) != 1 {
		t.Fatalf("%v\n%s", problems, config)
	}
	return level(documents[0])
}

// level parses the descriptors of a YAML node.
func level(n *yamldoc.Node) (all []*node) {
	descriptors, _ := n.Get("descriptors")
	if descriptors.Value == nil {
		return nil
	}
	for _, item := range descriptors.Value.Items {
		p := &node{
			line: item.Line, key: text(item, "key"), value: text(item, "value"), shadow: text(item, "shadow_mode") == "true",
			quota: text(item, "quota_mode") == "true", shares: text(item, "share_threshold") == "true", below: level(item),
		}
		if rate, ok := item.Get("rate_limit"); ok {
			p.limit = limitOf(rate.Value)
		}
		all = append(all, p)
	}
	return all
}

func limitOf(n *yamldoc.Node) *limit {
	l := &limit{unit: strings.ToUpper(text(n, "unit")), unlimited: text(n, "unlimited") == "true", name: text(n, "name")}
	l.seconds = seconds[l.unit]
	l.requests, _ = strconv.ParseInt(strings.ReplaceAll(text(n, "requests_per_unit"), "_", ""), 10, 64) // none is 0
	if replaces, ok := n.Get("replaces"); ok {
		for _, item := range replaces.Value.Items {
			l.replaces = append(l.replaces, text(item, "name"))
		}
	}
	return l
}

func text(n *yamldoc.Node, key string) string {
	if e, ok := n.Get(key); ok {
		return e.Value.Text
	}
	return ""
}

// each calls f for all nodes, parents first, with the path to each.
func each(path, level []*node, f func(path []*node)) {
	for _, p := range level {
		to := slices.Concat(path, []*node{p})
		f(to)
		each(to, p.below, f)
	}
}
