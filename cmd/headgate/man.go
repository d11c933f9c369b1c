package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan returns the command that packages are built with. It is hidden because an installed package has the pages already.
func newMan(p *program) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIRECTORY",
		Short:   "Write the manual pages of all commands to a directory",
		Example: "  headgate man /usr/local/share/man/man1",
		Args:    cobra.ExactArgs(1),
		Hidden:  true,
		RunE:    func(cmd *cobra.Command, args []string) error { return p.writeManPages(cmd.Root(), args[0]) },
	}
}

// writeManPages dates the pages by the commit, so that two builds of it write the same bytes.
func (p *program) writeManPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // G301: manual pages are for all users
		return err
	}
	v := thisVersion()
	date, err := time.Parse(time.RFC3339, v.CommitTime)
	if err != nil {
		date = time.Unix(0, 0).UTC()
	}
	root.DisableAutoGenTag = true // it has the date of the build
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &date, Source: "headgate " + v.Headgate, Manual: "Headgate"}, dir)
}
