package main

import (
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/ruledoc"
)

func newSchema(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of rule files",
		Long: `Print the JSON Schema of rule files. Editors validate a rule file that begins with this line:

  # yaml-language-server: $schema=headgate.schema.json`,
		Example: "  headgate rules schema > headgate.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := p.out.Write(ruledoc.Schema())
			return err
		},
	}
}
