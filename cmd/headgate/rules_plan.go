package main

import (
	"cmp"
	"context"
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
	// From is the version that the plan is based on, and To the new version; To is 0 if nothing was applied.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Changes are the planned changes, in the format of "rules diff".
	Changes *rulediff.Report `json:"changes"`
	Notes   []string         `json:"notes"`
}

// planOptions holds the flags of commands that change all rules.
type planOptions struct {
	yes, dryRun bool
	comment     string
}

func (o *planOptions) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask for confirmation; required without a terminal")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show the plan and change nothing")
	cmd.Flags().StringVar(&o.comment, "reason", "", "`TEXT` for the version history")
}

// applyPlan prints a plan, asks for confirmation, and applies it.
func (p *program) applyPlan(
	ctx context.Context, o *planOptions, r *planReport, apply func() (adminapi.Published, error),
) (report, error) {
	prompt := !o.yes && !o.dryRun && len(r.Changes.Entries) > 0
	if prompt && p.output != outputHuman {
		return nil, &usageError{fmt.Errorf("--output %s cannot ask for confirmation: use --yes, or --dry-run to see the plan", p.output)}
	}
	if p.output == outputHuman {
		if _, err := io.WriteString(p.out, r.Changes.String()+notesText(r.Notes)); err != nil {
			return nil, err
		}
	}
	if len(r.Changes.Entries) == 0 {
		return r, nil
	}
	if o.dryRun {
		return r, failure()
	}
	if prompt {
		if yes, err := p.confirm(ctx, fmt.Sprintf("apply as version %d?", r.From+1)); err != nil || !yes {
			return r, cmp.Or(err, failure())
		}
	}
	done, err := apply()
	if adminclient.HasStatus(err, http.StatusConflict) {
		err = fmt.Errorf("%w\nthe rules were published by another user in the meantime, nothing was applied: run the command again and "+
			"review the new plan", err)
	}
	r.Applied, r.To = true, done.Version
	return r, err
}

// text returns the outcome, which follows the plan.
func (r *planReport) text() string {
	switch {
	case r.Applied:
		return fmt.Sprintf("applied as version %d; check the rollout with headgate nodes\n", r.To)
	case len(r.Changes.Entries) == 0:
		return ""
	}
	return "nothing was applied\n"
}
