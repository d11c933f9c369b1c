package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/rulediff"
	"github.com/headgate/headgate/ruledoc"
)

// diffReport is the report of "rules diff".
type diffReport struct{ *rulediff.Report }

func (r diffReport) text() string { return r.String() }

func newDiff(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Compare two versions of the rules and show what changes for clients",
		Long: `Compare two versions of the rules, each a file or a directory, and show what changes for clients.

Each change is marked "looser" (fewer requests are denied), "tighter" (more requests are denied) or "other" (neither, or it
depends on the request). A limit is looser if neither its rate nor its burst decreases. The order of rules is ignored.

Exit codes:
  0  no changes
  1  changes found
  2  OLD or NEW has problems or cannot be read`,
		Example: "  headgate rules diff /etc/headgate/rules/ new-rules/",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, paths []string) error {
			var documents [2]*ruledoc.Document
			for i, side := range []string{"OLD", "NEW"} {
				var err error
				if documents[i], err = ruledoc.Load(paths[i]); err != nil {
					return fmt.Errorf("load %s: %w", side, err)
				}
			}
			r := diffReport{rulediff.New(documents[0], documents[1], time.Now())}
			r.Old.Path, r.New.Path = paths[0], paths[1]
			return p.finish(r, failUnless(len(r.Entries) == 0))
		},
	}
}
