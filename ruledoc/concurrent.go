package ruledoc

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// isConcurrent reports whether a text is meant as a concurrency limit.
func isConcurrent(s string) bool { return strings.Contains(s, "concurrent") }

// concurrent decodes 20 concurrent.
func (d *decoder) concurrent(n *node, key string, defaults limitDefaults) headgate.Limit {
	limit, problems := parseConcurrent(n.Text, defaults)
	for _, problem := range problems {
		d.Bad(n, "%s: %s", key, problem)
	}
	return limit
}

// parseConcurrent parses "20 concurrent" or "20 concurrent, lease 1m", as headgate.Limit formats it. The problems do not name the key.
func parseConcurrent(s string, defaults limitDefaults) (limit headgate.Limit, problems []string) {
	number, rest, found := strings.Cut(s, " concurrent")
	rest = strings.TrimSpace(rest)
	lease, hasLease := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(rest, ",")), "lease ")
	if !found || rest != "" && !hasLease {
		return headgate.Limit{}, []string{fmt.Sprintf("must be 20 concurrent or {concurrent: 20, lease: 1m}, not %q", yamldoc.Shorten(s))}
	}
	limit = headgate.Limit{Algorithm: headgate.Concurrency, Window: defaults.leaseOrDefault()}
	limit.Count, problems = parseCount("count", strings.TrimSpace(number), nil)
	if hasLease {
		var err error
		if limit.Window, err = time.ParseDuration(strings.TrimSpace(lease)); err != nil {
			problems = append(problems, fmt.Sprintf("lease %q: must be a duration like 10s or 1m", yamldoc.Shorten(lease)))
		}
	}
	return limit, problems
}

// leaseText returns a lease without zero units at its end: 1m, not 1m0s.
func leaseText(lease time.Duration) string {
	text := lease.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
