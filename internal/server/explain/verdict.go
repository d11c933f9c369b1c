package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
)

// summarise is the verdict in a sentence.
func (r *Report) summarise(d *headgate.Decision) string {
	var denying, shadow []string
	for i := range r.Limits {
		l := &r.Limits[i]
		switch {
		case !l.Allowed && l.Enforced:
			denying = append(denying, l.title())
		case !l.Allowed && l.Origin != headgate.FromCandidate.String():
			shadow = append(shadow, l.title())
		}
	}
	if worst := d.DeniedBy(); worst != nil {
		text := "429: denied by " + wording.List(denying)
		switch {
		case worst.DecidedBy() == headgate.PathFailed: // nobody knows for how long
			return "503: denied by " + wording.List(denying) + r.outage()
		case worst.Missing != "":
			return text + "; retrying does not help: the request has no " + worst.Missing
		case worst.RetryAfter == headgate.Never:
			return fmt.Sprintf("%s; retrying does not help: it costs %s, and the limit holds %s", text,
				wording.Number(worst.Cost), wording.Number(worst.Limit.Capacity()))
		}
		return text + "; retry after " + span(d.RetryAfter) + r.outage()
	}
	text := "passes: no rule applies"
	if n := len(d.Limits); n > 0 {
		text = "passes: within " + wording.Count(n, "limit")
	}
	special := slices.IndexFunc(r.NotApplied, func(o OtherRule) bool {
		return strings.HasPrefix(o.Why, "exempt") || strings.HasPrefix(o.Why, "all rules")
	})
	if special >= 0 && len(d.Limits) == 0 {
		text += ": " + r.NotApplied[special].Why
	}
	if d.Delay > 0 {
		text += "; it is held for " + d.Delay.Round(time.Millisecond).String()
	}
	if len(shadow) > 0 {
		text += "; " + wording.List(shadow) + " would deny but for shadow"
	}
	return text + r.outage()
}

// outage says who decides while Redis does not; empty if it does.
func (r *Report) outage() string {
	if !r.RedisUnavailable {
		return ""
	}
	// The limits that deny come first.
	if first := slices.IndexFunc(r.Limits, func(l Limit) bool { return l.apart() }); r.Limits[first].DecidedBy == string(headgate.PathLocal) {
		return "; Redis is unavailable, and this node's local fallback share decides"
	}
	return "; Redis is unavailable, and the rule's on_store_failure decides"
}

// verdict is what one limit says.
func verdict(l *headgate.LimitDecision) string {
	text := "passes"
	switch {
	case l.Missing != "":
		text = "denies: no " + l.Missing
	case l.DecidedBy() == headgate.PathFailed && l.WouldDeny():
		text = "denies by on_store_failure"
	case l.DecidedBy() == headgate.PathFailed:
		text = "passes by on_store_failure"
	case l.WouldDeny() && l.RetryAfter == headgate.Never:
		text = "denies: asks for too much"
	case l.WouldDeny():
		text = "denies for " + span(l.RetryAfter)
	case l.Delay > 0:
		text = "passes after " + l.Delay.Round(time.Millisecond).String()
	}
	if l.Enforced {
		return text
	}
	mode := " (shadow)"
	if l.Origin == headgate.FromCandidate {
		mode = " (on trial)"
	}
	return strings.Replace(text, "denies", "would deny", 1) + mode
}
