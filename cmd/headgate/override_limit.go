package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// limitReport is a limit in the JSON of "override set".
type limitReport struct {
	// Text describes the limit, with its unit.
	Text  string `json:"text"`
	Count int64  `json:"count"`
	// WindowSeconds is null for a calendar limit, and the lease of a concurrency limit.
	WindowSeconds *float64 `json:"window_seconds"`
	Calendar      string   `json:"calendar,omitzero"`
	// Burst is the capacity: the largest cost that can be granted at once.
	Burst     int64  `json:"burst"`
	Algorithm string `json:"algorithm"`
	// Origin is rule or override.
	Origin string `json:"origin"`
}

// formatLimit describes a limit: 1,000 requests per minute, burst 200; 20 requests in flight.
func formatLimit(l headgate.Limit, unit string) string {
	if l.Algorithm == headgate.Concurrency {
		return wording.Count(int(l.Count), unit) + " in flight, lease " + l.Window.String()
	}
	per := "calendar " + l.Calendar.String()
	if l.Calendar == headgate.NoCalendar {
		per = strings.TrimPrefix(headgate.Per(1, l.Window).String(), "1/")
	}
	text := wording.Count(int(l.Count), unit) + " per " + per
	if l.Algorithm == headgate.TokenBucket && l.Calendar == headgate.NoCalendar {
		return text + ", burst " + wording.Number(l.Capacity())
	}
	return text + ", " + l.Algorithm.String()
}

func newLimitReport(l headgate.Limit, unit, origin string) *limitReport {
	r := &limitReport{Text: formatLimit(l, unit), Count: l.Count, Burst: l.Capacity(), Algorithm: l.Algorithm.String(), Origin: origin}
	if l.Calendar == headgate.NoCalendar {
		r.WindowSeconds = new(l.Window.Seconds())
	} else {
		r.Calendar = l.Calendar.String()
	}
	return r
}

// overridden is the limit that an override replaces, with its rule.
type overridden struct {
	rule    headgate.Rule
	own     headgate.Limit
	current *adminapi.StoredOverride // nil if the subject has none yet
}

// findOverridden fetches the limit that an override is about to replace. It accepts a rule without such a limit, because the server
// rejects the override.
func findOverridden(ctx context.Context, c *adminclient.Client, o *adminapi.Override) (*overridden, error) {
	rule, err := c.Rule(ctx, o.Rule)
	if err != nil {
		return nil, err
	}
	before := &overridden{rule: rule, own: replacedLimit(o, &rule)}
	stored, _, err := c.Overrides(ctx, o.Rule, o.Subject, defaultListed)
	for i := range stored {
		if stored[i].LimitName == o.LimitName && maps.Equal(stored[i].Subject, o.Subject) {
			before.current = &stored[i]
		}
	}
	return before, err
}

// replacedLimit returns the limit of a rule that an override replaces. Its Count is 0 if the rule has no limit of that name.
func replacedLimit(o *adminapi.Override, rule *headgate.Rule) headgate.Limit {
	if o.LimitName != "" {
		return rule.Limits[o.LimitName]
	}
	return rule.Limit
}

// compare adds the limits before and after the override to the report.
func (b *overridden) compare(r *overrideReport) error {
	unit := "request"
	if b.rule.Cost.From != "" {
		unit = "unit"
	}
	after, err := ruledoc.ParseLimit(r.Override.Limit, b.own)
	if err != nil {
		return err
	}
	r.After = newLimitReport(after, unit, "override")
	r.Before = newLimitReport(b.own, unit, "rule")
	if b.current != nil {
		if was, err := ruledoc.ParseLimit(b.current.Limit, b.own); err == nil {
			r.Before = newLimitReport(was, unit, "override")
		}
	} else if len(b.rule.Tiers) > 0 {
		r.Notes = append(r.Notes, "the rule has tiers: the override also replaces the limit of the subject's tier")
	}
	var others []string
	for _, name := range slices.Sorted(maps.Keys(b.rule.Limits)) {
		if name != r.Override.LimitName {
			others = append(others, name+" "+formatLimit(b.rule.Limits[name], unit))
		}
	}
	if b.rule.Limit.Count > 0 && r.Override.LimitName != "" {
		others = append(others, formatLimit(b.rule.Limit, unit))
	}
	if len(others) > 0 {
		r.Notes = append(r.Notes, "other limits of the rule do not change: "+strings.Join(others, "; "))
	}
	return nil
}
