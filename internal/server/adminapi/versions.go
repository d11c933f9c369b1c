package adminapi

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/server/rulediff"
	"github.com/headgate/headgate/ruledoc"
)

// Version is one of the rules.
type Version = pgrules.Version

// RulesAt is a version with its rules.
type RulesAt struct {
	Version
	Rules []Rule `json:"rules"`
}

// Published is what has become of a change of the rules, or would.
type Published struct {
	Version int64            `json:"version"`
	DryRun  bool             `json:"dryRun"`
	Changes *rulediff.Report `json:"changes"`
}

func (a *api) listVersions(w http.ResponseWriter, r *http.Request, _ Caller) error {
	page, _, err := readPage(r)
	if err != nil {
		return err
	}
	all, err := a.DB.Versions(r.Context(), page)
	if err != nil {
		return err
	}
	return answerPage(w, page, "versions", all, func(v *Version) int64 { return v.Number })
}

func (a *api) readVersion(w http.ResponseWriter, r *http.Request, _ Caller) error {
	v, rules, err := a.versionIn(r, "version")
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, RulesAt{v, append([]Rule{}, rules...)})
}

// versionIn is the version whose number is in the path, and its rules.
func (a *api) versionIn(r *http.Request, name string) (v Version, rules []Rule, err error) {
	number, err := pathNumber(r, name)
	if err != nil {
		return v, nil, err
	}
	if v, err = a.DB.Version(r.Context(), number); err != nil {
		return v, nil, err
	}
	rules, err = a.DB.RulesAt(r.Context(), number)
	return v, rules, err
}

func (a *api) compareVersions(w http.ResponseWriter, r *http.Request, _ Caller) error {
	var sides [2]*ruledoc.Document
	var paths [2]string
	for i, name := range []string{"version", "other"} {
		v, stored, err := a.versionIn(r, name)
		if err != nil {
			return err
		}
		rules := make([]headgate.Rule, len(stored))
		for i := range stored {
			if rules[i], err = ruledoc.ParseRule("rule "+stored[i].Name, stored[i].Document); err != nil {
				return fmt.Errorf("%w: version %d: %w", pgrules.ErrRefused, v.Number, err)
			}
		}
		if sides[i], err = documentOf(rules, pgrules.ModeOf(v.Mode)); err != nil {
			return err
		}
		paths[i] = fmt.Sprintf("version %d", v.Number)
	}
	report := rulediff.New(sides[0], sides[1], time.Now())
	report.Old.Path, report.New.Path = paths[0], paths[1]
	return answer(w, http.StatusOK, report)
}

func documentOf(rules []headgate.Rule, mode headgate.Mode) (*ruledoc.Document, error) {
	set, err := headgate.Compile(rules...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pgrules.ErrRefused, err)
	}
	return &ruledoc.Document{Rules: set.WithMode(mode), Source: rules, Mode: mode}, nil
}

// reportOf says what an outcome means for whom.
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

func (a *api) publishVersion(w http.ResponseWriter, r *http.Request, by Caller) error {
	body, err := readBody(w, r, maxBulk)
	if err != nil {
		return err
	}
	wanted, change, err := readChange(body, "")
	if err != nil {
		return err
	}
	change.Base, change.DryRun = wanted.Base, wanted.DryRun
	outcome, err := a.DB.Publish(r.Context(), by.who(wanted.Comment), change)
	if err != nil {
		return err
	}
	return answerOutcome(w, &outcome, wanted.DryRun)
}

func answerOutcome(w http.ResponseWriter, o *pgrules.Outcome, dryRun bool) error {
	report, err := reportOf(o)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, Published{o.Version, dryRun, report})
}

func (a *api) rollBack(w http.ResponseWriter, r *http.Request, by Caller) error {
	number, err := pathNumber(r, "version")
	if err != nil {
		return err
	}
	body, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	wanted, err := parseLike[struct {
		Comment string `json:"comment"`
	}](body, `{"comment": "why"}, or nothing`)
	if err != nil {
		return err
	}
	comment := cmp.Or(wanted.Comment, fmt.Sprintf("rolled back to version %d", number))
	outcome, err := a.DB.Rollback(r.Context(), by.who(comment), number)
	if err != nil {
		return err
	}
	return answerOutcome(w, &outcome, false)
}
