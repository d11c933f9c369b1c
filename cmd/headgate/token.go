package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/adminapi"
)

// tokenReport is the JSON of "token create".
type tokenReport struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Token   string `json:"token"`
	// Line is what the server's file of tokens needs.
	Line string `json:"line"`
}

func newToken(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make tokens for a server's admin API"}
	var role, tenant string
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token, and the line that lets it in",
		Long: `Make a token, and the line that lets it in. The line belongs into the file that admin.tokens_file of the server
names; running servers read it within a second. The token is shown this once and stored nowhere: the line has its hash
only. The name says whose it is. To take the token back, remove the line.

A viewer may look, an editor also change rules and what goes with them, an admin also change who may. With a tenant the
token is for what is that tenant's, and nothing else.`,
		Example: "  headgate token create ann\n  headgate token create bob --role editor --tenant acme",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var rights []string
			if cmd.Flags().Changed("role") {
				rights = append(rights, role)
			}
			if cmd.Flags().Changed("tenant") { // also if it is empty, which is an error: it would be for all tenants
				rights = append(rights, "tenant="+tenant)
			}
			token, line, err := adminapi.NewToken(args[0], rights...)
			if err != nil {
				return usage(cmd, err)
			}
			return p.end(&tokenReport{jsonVersion, args[0], token, line}, nil)
		},
	}
	create.Flags().StringVar(&role, "role", string(adminapi.Viewer), "`ROLE` of the token's owner: viewer, editor or admin")
	create.Flags().StringVar(&tenant, "tenant", "", "`TENANT` that the token is for; without it, for all")
	cmd.AddCommand(create)
	return cmd
}

func (r *tokenReport) text() string {
	return fmt.Sprintf(`Give this to %s, it is not shown again:
%s

Append this to the file that admin.tokens_file names:
%s
`, r.Name, r.Token, r.Line)
}
