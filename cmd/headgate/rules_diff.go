package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/rulediff"
	"github.com/headgate/headgate/ruledoc"
)

// diffReport is what "rules diff" prints.
type diffReport struct{ *rulediff.Report }

func (r diffReport) text() string { return r.String() }

func newDiff(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Say what changes for whom between two versions of the rules",
		Long: `Say what changes for whom between two versions of the rules, each a file or a directory.

"looser" means that less is denied afterwards, "tighter" that more is, "other" that it depends or that neither is. A
limit is looser if its rate and what may pass at once are no less than before. The order of rules means nothing.

Exit code: 0 nothing changes; 1 something does; 2 a side has problems or cannot be read.`,
		Example: "  headgate rules diff /etc/headgate/rules/ new-rules/",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, paths []string) error {
			var documents [2]*ruledoc.Document
			for i, side := range []string{"OLD", "NEW"} {
				var err error
				if documents[i], err = ruledoc.Load(paths[i]); err != nil {
					return fmt.Errorf("%s cannot be loaded: %w", side, err)
				}
			}
			r := diffReport{rulediff.New(documents[0], documents[1], time.Now())}
			r.Old.Path, r.New.Path = paths[0], paths[1]
			return p.end(r, verdict(len(r.Entries) == 0))
		},
	}
}
