package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/rulediff"
)

// planReport is the JSON of "rules apply" and "rules rollback".
type planReport struct {
	Applied bool `json:"applied"`
	// From is the version of the rules that was planned from, and To the one that was made; 0 if none was.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Changes are what changes for whom, as "rules diff" has them.
	Changes *rulediff.Report `json:"changes"`
	Notes   []string         `json:"notes"`
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
func (p *program) carryOut(
	ctx context.Context, o *planOptions, r *planReport, apply func() (adminapi.Published, error),
) (report, error) {
	asks := !o.yes && !o.dryRun && len(r.Changes.Entries) > 0
	if asks && p.output == "json" {
		return nil, &usageError{errors.New("a program cannot be asked: give --yes, or --dry-run to see the plan")}
	}
	if p.output != "json" {
		if _, err := io.WriteString(p.out, r.Changes.String()+notesText(r.Notes)); err != nil {
			return nil, err
		}
	}
	if len(r.Changes.Entries) == 0 {
		return r, nil
	}
	if o.dryRun {
		return r, no()
	}
	if asks {
		if yes, err := p.confirm(ctx, fmt.Sprintf("apply as version %d?", r.From+1)); err != nil || !yes {
			return r, cmp.Or(err, no())
		}
	}
	done, err := apply()
	if adminclient.HasStatus(err, http.StatusConflict) {
		err = fmt.Errorf("%w\nsomebody has published meanwhile, and nothing was applied: run it again, and look at the plan as it "+
			"is now", err)
	}
	r.Applied, r.To = true, done.Version
	return r, err
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
