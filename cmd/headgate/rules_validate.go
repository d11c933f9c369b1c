package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// validateReport is the JSON of "rules validate". If there are problems, the other fields are empty.
type validateReport struct {
	OK         bool `json:"ok"`
	Files      int  `json:"files"`
	Rules      int  `json:"rules"`
	Overrides  int  `json:"overrides"`
	Exemptions int  `json:"exemptions"`
	// Mode caps all rules: enforce, shadow or off.
	Mode string `json:"mode"`
	// RulesVersion is the version that nodes with these rules report.
	RulesVersion string         `json:"rules_version"`
	Problems     ruledoc.Errors `json:"problems"`
	// Warnings list what is valid but probably unintended.
	Warnings []string `json:"warnings"`
}

func newValidate(p *program) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "validate PATH...",
		Short: "Validate rule files and report all problems",
		Long: `Validate rule files and report all problems. The files are merged into one document, as a server does.

A directory includes its *.yaml, *.yml and *.json files, except hidden files and files that end in _test.

With --config, it also warns of rules with regions: shared that do not suit the regions in that config. The rules that the
config names are not read.

Exit codes:
  0  the rules are valid
  1  the rules or the config have problems
  2  a file cannot be read`,
		Example: "  headgate rules validate /etc/headgate/rules/\n  headgate rules validate --config /etc/headgate/config.yaml /etc/headgate/rules/",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, paths []string) error {
			var regions *config.Regions
			if file != "" {
				c, err := p.loadConfig(file)
				if err != nil {
					return err
				}
				regions = &c.Regions
			}
			r := validateReport{Problems: ruledoc.Errors{}, Warnings: []string{}}
			d, warnings, err := loadWithWarnings(regions, paths...)
			if errors.As(err, &r.Problems) {
				return p.finish(&r, failure())
			} else if err != nil {
				return err
			}
			r.OK, r.Files, r.Mode, r.RulesVersion = true, len(d.Files), d.Mode.String(), d.Rules.Version()
			r.Rules, r.Overrides, r.Exemptions = len(d.Source), len(d.Overrides), len(d.Exemptions)
			r.Warnings = append(r.Warnings, warnings...)
			return p.finish(&r, nil)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "`FILE` with the server config, for its regions")
	return cmd
}

// loadWithWarnings reads rule files, and returns what is valid but probably unintended. Regions may be nil if they are not known.
func loadWithWarnings(regions *config.Regions, paths ...string) (d *ruledoc.Document, warnings []string, err error) {
	d, err = ruledoc.Load(paths...)
	if err != nil {
		return nil, nil, err
	}
	for i := range d.Source {
		warnings = append(warnings, costWarnings(d, &d.Source[i])...)
		warnings = append(warnings, concurrencyWarnings(&d.Source[i])...)
	}
	if regions != nil {
		for _, w := range server.RegionWarnings(d.Rules, regions) {
			warnings = append(warnings, w.String())
		}
	}
	return d, append(warnings, expired(d, time.Now())...), nil
}

func (r *validateReport) text() string {
	if !r.OK {
		files := map[string]bool{}
		for _, problem := range r.Problems {
			files[problem.File] = true
		}
		return fmt.Sprintf("%s\n\n%s in %s\n", r.Problems, wording.Count(len(r.Problems), "problem"), wording.Count(len(files), "file"))
	}
	text := fmt.Sprintf("ok: %s, %s, %s in %s; version %s\n", wording.Count(r.Rules, "rule"), wording.Count(r.Overrides, "override"),
		wording.Count(r.Exemptions, "exemption"), wording.Count(r.Files, "file"), r.RulesVersion)
	if r.Mode != headgate.Enforce.String() {
		text += "mode is " + r.Mode + ": these rules deny no requests\n"
	}
	if len(r.Warnings) > 0 {
		text += "warning: " + strings.Join(r.Warnings, "\nwarning: ") + "\n"
	}
	return text
}

// expired returns a warning for each override and exemption that has expired.
func expired(d *ruledoc.Document, now time.Time) []string {
	var found []string
	check := func(what string, at time.Time) {
		if !at.IsZero() && !at.After(now) {
			found = append(found, fmt.Sprintf("%s expired at %s and has no effect: remove it or change expires", what, formatTime(at)))
		}
	}
	for i := range d.Overrides {
		o := &d.Overrides[i]
		check(fmt.Sprintf("rule %q: the override for %s", o.Rule, subjectText(o.Subject)), o.Expires)
	}
	for i := range d.Exemptions {
		x := &d.Exemptions[i]
		from := "all rules"
		if x.Rule != "" {
			from = fmt.Sprintf("rule %q", x.Rule)
		}
		check(fmt.Sprintf("%s: the exemption of %s=%s", from, x.Attribute, x.Value), x.Expires)
	}
	return found
}

// concurrencyWarnings returns a warning for each key that has no effect on, or prevents, the concurrency limits of a rule.
func concurrencyWarnings(rule *headgate.Rule) (found []string) {
	limits := append(slices.Collect(maps.Values(rule.Limits)), rule.Limit)
	for _, tier := range rule.Tiers {
		limits = append(append(limits, tier.Limit), slices.Collect(maps.Values(tier.Limits))...)
	}
	limits = slices.DeleteFunc(limits, func(l headgate.Limit) bool { return l.Count == 0 })
	isConcurrency := func(l headgate.Limit) bool { return l.Algorithm == headgate.Concurrency }
	if !slices.ContainsFunc(limits, isConcurrency) {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(limits), isConcurrency)
	if rule.OnHoldExpiry != headgate.ReleaseHold && len(others) == 0 {
		found = append(found, fmt.Sprintf("rule %q: on_hold_expiry has no effect: reservations do not apply concurrency limits; remove it", rule.ID))
	}
	for _, name := range []string{"domain", "entries"} {
		if p := rule.Match.Attributes[name]; len(p.Values) > 0 || p.Prefix != "" || p.Presence == headgate.Present {
			found = append(found, fmt.Sprintf("rule %q: matches only requests with %s, which Envoy sends, but Envoy does not report the end of requests: "+
				"its concurrency limit is not applied to them", rule.ID, name))
		}
	}
	return found
}

// costWarnings returns a warning for each limit that a rule charges whose capacity is below the largest cost of a request.
func costWarnings(d *ruledoc.Document, rule *headgate.Rule) []string {
	if rule.Cost.From == "" {
		return nil
	}
	charged, ok := d.Rules.Rule(rule.Counter)
	if !ok {
		charged = *rule
	}
	limits := maps.Collect(maps.All(charged.Limits))
	if charged.Limit != (headgate.Limit{}) {
		limits[""] = charged.Limit
	}
	var found []string
	maxCost := cmp.Or(rule.Cost.Max, headgate.MaxCost)
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[name]
		if capacity := limit.Capacity(); maxCost > capacity && limit.Algorithm != headgate.LeakyBucket {
			larger := "burst"
			if limit.Algorithm == headgate.Concurrency {
				larger = "limit"
			}
			found = append(found, fmt.Sprintf("rule %q: a request may cost up to %s by %s, but limit %s has a capacity of %s: "+
				"requests above it are always denied; set cost.max or a larger %s", rule.ID, wording.Number(maxCost), rule.Cost.From,
				strings.TrimSpace(name+" "+limit.String()), wording.Number(capacity), larger))
		}
	}
	return found
}
