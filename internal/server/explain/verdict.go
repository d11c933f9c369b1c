package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
)

// summarise returns the decision in one sentence.
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
		case worst.DecidedBy() == headgate.PathFailed: // the time to wait is unknown
			return "503: denied by " + wording.List(denying) + r.outage()
		case worst.Missing != "":
			return text + "; retrying does not help: the request has no " + worst.Missing
		case worst.RetryAfter == headgate.Never:
			return text + "; retrying does not help: " + r.whyNever(worst)
		}
		if d.RetryAfter == headgate.Unknown {
			return text + "; retry when a request in flight has ended" + r.outage()
		}
		return text + "; retry after " + span(d.RetryAfter) + r.outage()
	}
	text := "allowed: no rule applies"
	if n := len(d.Limits); n > 0 {
		text = "allowed: within " + wording.Count(n, "limit")
	}
	special := slices.IndexFunc(r.NotApplied, func(o OtherRule) bool {
		return strings.HasPrefix(o.Why, "exempt") || strings.HasPrefix(o.Why, "all rules")
	})
	if special >= 0 && len(d.Limits) == 0 {
		text += ": " + r.NotApplied[special].Why
	}
	if d.Delay > 0 {
		text += "; delayed by " + d.Delay.Round(time.Millisecond).String()
	}
	if len(shadow) > 0 {
		text += "; " + wording.List(shadow) + " would deny (shadow)"
	}
	return text + r.outage()
}

// whyNever returns why a limit never allows the request.
func (r *Report) whyNever(l *headgate.LimitDecision) string {
	cost, capacity := wording.Number(l.Cost), wording.Number(l.Limit.Capacity())
	switch {
	case !exceedsShare(l):
		return "cost " + cost + " exceeds the capacity of " + capacity
	case l.Share > 0:
		return fmt.Sprintf("cost %s exceeds this region's share of %s (limit %s in all regions)", cost, wording.Number(l.Share), capacity)
	case slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.Regions.drained() }):
		return "this region has no share of the limit, because its weight is 0"
	}
	return "this region has no share of the limit of " + capacity
}

// exceedsShare reports whether the limit never allows the request in this region, although the whole limit would.
func exceedsShare(l *headgate.LimitDecision) bool {
	return l.Shared && l.WouldDeny() && l.RetryAfter == headgate.Never && l.Missing == "" && l.Cost <= l.Limit.Capacity()
}

// shareNote returns a note on a region's share that is too small for the request, or "".
func shareNote(l *headgate.LimitDecision, r *Regions) string {
	switch {
	case !exceedsShare(l):
		return ""
	case l.Share > 0:
		return l.Rule + ": a request cannot cost more than the share of its region: raise the limit, or the weight of the region (headgate regions weight)"
	case r.drained():
		return "headgate regions shows the weights of the regions; headgate regions restore " + r.own().Name + " gives this region its share again"
	}
	return l.Rule + ": the limit is too small to be divided among the regions, or their weights are being changed: headgate regions shows the weights"
}

// outage returns the part of the summary that says what decides while Redis or a home is unavailable. It is empty if all are available.
func (r *Report) outage() string {
	unavailable := r.unavailable("Redis", "home region ")
	if unavailable == "" {
		return ""
	}
	// Denying limits come first.
	if first := slices.IndexFunc(r.Limits, func(l Limit) bool { return l.withoutRedis() }); r.Limits[first].DecidedBy == string(headgate.PathLocal) {
		return "; " + unavailable + ": decided by this node's local fallback share"
	}
	return "; " + unavailable + ": decided by the rule's on_store_failure"
}

// unavailable returns which stores did not decide: "Redis and home region us are unavailable". It is empty if all of them did.
func (r *Report) unavailable(redis, home string) string {
	stores := r.stores(redis, home, (*Limit).withoutRedis)
	switch len(stores) {
	case 0:
		return ""
	case 1:
		return stores[0] + " is unavailable"
	}
	return wording.List(stores) + " are unavailable"
}

// stores returns the stores of some limits: this region's Redis first, then the homes in other regions.
func (r *Report) stores(redis, home string, of func(*Limit) bool) (names []string) {
	for i := range r.Limits {
		l := &r.Limits[i]
		switch region := l.homeElsewhere(); {
		case !of(l):
		case region == "" && !slices.Contains(names, redis):
			names = slices.Insert(names, 0, redis)
		case region != "" && !slices.Contains(names, home+region):
			names = append(names, home+region)
		}
	}
	return names
}

// verdict returns the decision of one limit.
func verdict(l *headgate.LimitDecision) string {
	text := "allowed"
	switch {
	case l.Missing != "":
		text = "denied: no " + l.Missing
	case l.DecidedBy() == headgate.PathFailed && l.WouldDeny():
		text = "denied by on_store_failure"
	case l.DecidedBy() == headgate.PathFailed:
		text = "allowed by on_store_failure"
	case exceedsShare(l) && l.Share == 0:
		text = "denied: no share in this region"
	case exceedsShare(l):
		text = "denied: cost exceeds this region's share"
	case l.WouldDeny() && l.RetryAfter == headgate.Never:
		text = "denied: cost exceeds capacity"
	case l.WouldDeny() && l.RetryAfter == headgate.Unknown:
		text = "denied until a request in flight has ended"
	case l.WouldDeny():
		text = "denied for " + span(l.RetryAfter)
	case l.Delay > 0:
		text = "allowed after " + l.Delay.Round(time.Millisecond).String()
	}
	if l.Enforced {
		return text
	}
	mode := " (shadow)"
	if l.Origin == headgate.FromCandidate {
		mode = " (candidate)"
	}
	return strings.Replace(text, "denied", "would deny", 1) + mode
}
