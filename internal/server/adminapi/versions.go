package adminapi

import (
	"cmp"
	"fmt"
	"net/url"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/server/rulediff"
	"github.com/headgate/headgate/ruledoc"
)

// Version is a version of the rules.
type Version = pgrules.Version

// RulesAt is a version with its rules.
type RulesAt struct {
	Version
	Rules []Rule `json:"rules"`
}

// Published is the result of a change of the rules, or of its dry run.
type Published struct {
	Version int64            `json:"version"`
	DryRun  bool             `json:"dryRun"`
	Changes *rulediff.Report `json:"changes"`
}

func (a *api) listVersions(c *call) (any, error) {
	id := func(v *Version) int64 { return v.Number }
	return list(c, "versions", id, nil, func(_ url.Values, page pgrules.Page) ([]Version, error) {
		return a.DB.Versions(c.Context(), page)
	})
}

func (a *api) readVersion(c *call) (any, error) { return a.versionIn(c, "version") }

// versionIn returns the version whose number is in the path, with its rules.
func (a *api) versionIn(c *call, name string) (v RulesAt, err error) {
	number, err := c.pathNumber(name)
	if err != nil {
		return v, err
	}
	if v.Version, err = a.DB.Version(c.Context(), number); err != nil {
		return v, err
	}
	v.Rules, err = a.DB.RulesAt(c.Context(), number)
	return v, err
}

func (a *api) compareVersions(c *call) (any, error) {
	var sides [2]*ruledoc.Document
	var paths [2]string
	for i, name := range []string{"version", "other"} {
		v, err := a.versionIn(c, name)
		if err != nil {
			return nil, err
		}
		rules := make([]headgate.Rule, len(v.Rules))
		for i := range v.Rules {
			if rules[i], err = ruledoc.ParseRule("rule "+v.Rules[i].Name, v.Rules[i].Document); err != nil {
				return nil, fmt.Errorf("%w: version %d: %w", pgrules.ErrRejected, v.Number, err)
			}
		}
		if sides[i], err = documentOf(rules, pgrules.ModeOf(v.Mode)); err != nil {
			return nil, err
		}
		paths[i] = fmt.Sprintf("version %d", v.Number)
	}
	report := rulediff.New(sides[0], sides[1], time.Now())
	report.Old.Path, report.New.Path = paths[0], paths[1]
	return report, nil
}

// documentOf returns rules as a compiled document, for rulediff.
func documentOf(rules []headgate.Rule, mode headgate.Mode) (*ruledoc.Document, error) {
	set, err := headgate.Compile(rules...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pgrules.ErrRejected, err)
	}
	return &ruledoc.Document{Rules: set.WithMode(mode), Source: rules, Mode: mode}, nil
}

// reportOf returns the report on the changes of an outcome.
func reportOf(o *pgrules.Outcome) (*rulediff.Report, error) {
	before, err := documentOf(o.Before, o.ModeBefore)
	if err != nil {
		return nil, err
	}
	after, err := documentOf(o.After, o.ModeAfter)
	if err != nil {
		return nil, err
	}
	report := rulediff.New(before, after, time.Now())
	report.Old.Path, report.New.Path = "before", "after"
	return report, nil
}

func (a *api) publishVersion(c *call) (any, error) {
	body, err := c.readBody(maxBulk)
	if err != nil {
		return nil, err
	}
	request, change, err := readChange(body, "")
	if err != nil {
		return nil, err
	}
	change.Base, change.DryRun = request.Base, request.DryRun
	outcome, err := a.DB.Publish(c.Context(), c.by.who(request.Comment), change)
	return published(&outcome, request.DryRun, err)
}

func published(o *pgrules.Outcome, dryRun bool, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	report, err := reportOf(o)
	return Published{o.Version, dryRun, report}, err
}

func (a *api) rollBack(c *call) (any, error) {
	number, err := c.pathNumber("version")
	if err != nil {
		return nil, err
	}
	body, err := c.readBody(maxBody)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	request, err := parseLike[struct {
		Comment string `json:"comment"`
	}](body, `{"comment": "why"}, or an empty body`)
	if err != nil {
		return nil, err
	}
	comment := cmp.Or(request.Comment, fmt.Sprintf("rolled back to version %d", number))
	outcome, err := a.DB.Rollback(c.Context(), c.by.who(comment), number)
	return published(&outcome, false, err)
}
