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
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// validateReport is the JSON of "rules validate". If there are problems, nothing else is known.
type validateReport struct {
	OK         bool `json:"ok"`
	Files      int  `json:"files"`
	Rules      int  `json:"rules"`
	Overrides  int  `json:"overrides"`
	Exemptions int  `json:"exemptions"`
	// Mode caps all rules: enforce, shadow or off.
	Mode string `json:"mode"`
	// RulesVersion is what nodes that run these rules report.
	RulesVersion string         `json:"rules_version"`
	Problems     ruledoc.Errors `json:"problems"`
	// Warnings are about what is allowed and hardly meant.
	Warnings []string `json:"warnings"`
}

func newValidate(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "validate PATH...",
		Short: "Say what is wrong with rule files, all of it",
		Long: `Say what is wrong with rule files, all of it. They are read as one document, as a server reads them.

A directory stands for its *.yaml, *.yml and *.json, but not for hidden files and those that end in _test.

Exit code: 0 all is well; 1 there are problems; 2 a file cannot be read.`,
		Example: "  headgate rules validate /etc/headgate/rules/",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, paths []string) error {
			r := validateReport{Problems: ruledoc.Errors{}, Warnings: []string{}}
			d, err := ruledoc.Load(paths...)
			if errors.As(err, &r.Problems) {
				return p.end(&r, no())
			} else if err != nil {
				return err
			}
			r.OK, r.Files, r.Mode, r.RulesVersion = true, len(d.Files), d.Mode.String(), d.Rules.Version()
			r.Rules, r.Overrides, r.Exemptions = len(d.Source), len(d.Overrides), len(d.Exemptions)
			for i := range d.Source {
				r.Warnings = append(r.Warnings, warnings(&d.Source[i])...)
			}
			r.Warnings = append(r.Warnings, expired(d, time.Now())...)
			return p.end(&r, nil)
		},
	}
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
		text += "mode is " + r.Mode + ": these rules deny nobody\n"
	}
	if len(r.Warnings) > 0 {
		text += "warning: " + strings.Join(r.Warnings, "\nwarning: ") + "\n"
	}
	return text
}

// expired finds overrides and exemptions that have no effect any more.
func expired(d *ruledoc.Document, now time.Time) []string {
	var found []string
	over := func(what string, at time.Time) {
		if !at.IsZero() && !at.After(now) {
			found = append(found, fmt.Sprintf("%s expired at %s and has no effect: remove it, or write another end", what, instant(at)))
		}
	}
	for i := range d.Overrides {
		o := &d.Overrides[i]
		over(fmt.Sprintf("rule %q: its override for %s", o.Rule, subjectText(o.Subject)), o.Expires)
	}
	for i := range d.Exemptions {
		x := &d.Exemptions[i]
		from := "all rules"
		if x.Rule != "" {
			from = fmt.Sprintf("rule %q", x.Rule)
		}
		over(fmt.Sprintf("%s: the exemption of %s=%s", from, x.Attribute, x.Value), x.Expires)
	}
	return found
}

// warnings finds requests that a rule lets cost more than one of its limits ever holds.
func warnings(rule *headgate.Rule) []string {
	if rule.Cost.From == "" {
		return nil
	}
	limits := maps.Collect(maps.All(rule.Limits))
	if rule.Limit != (headgate.Limit{}) {
		limits[""] = rule.Limit
	}
	var found []string
	most := cmp.Or(rule.Cost.Max, headgate.MaxCost)
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[name]
		if holds := limit.Capacity(); most > holds && limit.Algorithm != headgate.LeakyBucket {
			found = append(found, fmt.Sprintf("rule %q: a request may cost up to %s by %s, and limit %s holds %s: beyond that it "+
				"can never pass; write a max, or a burst", rule.ID, wording.Number(most), rule.Cost.From,
				strings.TrimSpace(name+" "+limit.String()), wording.Number(holds)))
		}
	}
	return found
}
