package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/rulediff"
)

const versionsPath = "/v1/rate-limit/versions"

// planReport is the JSON of "rules apply" and "rules rollback".
type planReport struct {
	Version int  `json:"version"`
	Applied bool `json:"applied"`
	// From is the version of the rules that was planned from, and To the one that was made; 0 if none was.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Changes are what changes for whom, as "rules diff" has them.
	Changes *rulediff.Report `json:"changes"`
	Notes   []string         `json:"notes"`
}

// published is what the admin API says of a change of rules.
type published struct {
	Version int64
	Changes *rulediff.Report
}

// planOptions are the flags of commands that change all rules.
type planOptions struct {
	yes, dryRun bool
	comment     string
}

func (o *planOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask; without a terminal it is needed")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would change, and change nothing")
	cmd.Flags().StringVar(&o.comment, "comment", "", "`TEXT` for the history")
}

// carryOut shows a plan, asks, and applies it.
func (p *program) carryOut(ctx context.Context, o *planOptions, r *planReport, apply func() (published, error)) error {
	asks := !o.yes && !o.dryRun && len(r.Changes.Entries) > 0
	if asks && p.output == "json" {
		return &usageError{errors.New("a program cannot be asked: give --yes, or --dry-run to see the plan")}
	}
	if p.output != "json" {
		if _, err := io.WriteString(p.out, r.Changes.String()+notesText(r.Notes)); err != nil {
			return err
		}
	}
	if len(r.Changes.Entries) == 0 {
		return p.end(r, nil)
	}
	if o.dryRun {
		return p.end(r, no())
	}
	if asks {
		yes, err := p.confirm(ctx, fmt.Sprintf("apply as version %d?", r.From+1))
		if err != nil {
			return err
		}
		if !yes {
			return p.end(r, no())
		}
	}
	done, err := apply()
	var refused *refusal
	if errors.As(err, &refused) && refused.status == http.StatusConflict {
		return fmt.Errorf("%w\nsomebody has published meanwhile, and nothing was applied: run it again, and look at the plan as it "+
			"is now", err)
	}
	if err != nil {
		return err
	}
	r.Applied, r.To = true, done.Version
	return p.end(r, nil)
}

// text is what comes after the plan.
func (r *planReport) text() string {
	switch {
	case r.Applied:
		return fmt.Sprintf("applied as version %d; headgate nodes shows who runs it\n", r.To)
	case len(r.Changes.Entries) == 0:
		return ""
	}
	return "nothing is applied\n"
}
