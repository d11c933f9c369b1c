package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
)

// tokenReport is the JSON of "token create".
type tokenReport struct {
	Name  string `json:"name"`
	Token string `json:"token"`
	// key names the file in the config that Line belongs into.
	key string
	// Line is what the server's file of tokens needs; "" if the token is in PostgreSQL, where it has an ID.
	Line string `json:"line"`
	ID   int64  `json:"id,omitzero"`
}

func newToken(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make tokens for a server's admin API, and take them back"}
	var role, tenant, expires string
	var o adminclient.Options
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token, and the line that lets it in",
		Long: `Make a token, and the line that lets it in. The line belongs into the file that admin.tokens_file of the server
names; running servers read it within a second. The token is shown this once and stored nowhere: the line has its hash
only. The name says whose it is. To take the token back, remove the line.

With --server, or the variable HEADGATE_SERVER, the hash goes into the PostgreSQL of that server instead, and all servers
with it let the token in at once. That takes the token of an admin. To take it back, headgate token rm. Where the variable
is set, --server "" makes a line all the same.

A viewer may look, an editor also change rules and what goes with them, an admin also change who may. With a tenant the
token is for what is that tenant's, and nothing else. With the role self it is for a customer, who sees the usage of the
tenant or, without one, of the user with the token's name. A caller may ask for decisions, and nothing of this: its line belongs
into the file that listen.tokens_file names, and it sends the token in X-Headgate-Token.`,
		Example: "  headgate token create ann\n  headgate token create nginx --role caller\n  headgate token create bob --role editor --tenant acme\n" +
			"  headgate token create bob --expires 14d --server https://gate:8083 --token-file mine",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var rights []string
			if cmd.Flags().Changed("role") {
				rights = append(rights, role)
			}
			if cmd.Flags().Changed("tenant") { // also if it is empty, which is an error: it would be for all tenants
				rights = append(rights, "tenant="+tenant)
			}
			if role != string(adminapi.CallerRole) { // whose tokens are in files
				fromVariable(cmd, &o)
			}
			token, line, err := adminapi.NewToken(args[0], rights...)
			if err != nil {
				return usage(cmd, err)
			}
			switch at, err := readExpiry(expires, time.Now()); {
			case err != nil:
				return usage(cmd, fmt.Errorf("--expires %w", err))
			case o.Server != "" && role == string(adminapi.CallerRole):
				return usage(cmd, errors.New("a caller's token is in a file and not in PostgreSQL: leave out --server"))
			case o.Server != "":
				return p.storeToken(cmd.Context(), o, &adminapi.TokenRequest{Name: args[0], Role: role, Tenant: tenant, ExpiresAt: at})
			case o != (adminclient.Options{}) || expires != "":
				return usage(cmd, errors.New("say which server keeps the token: give --server ADDRESS or set "+adminclient.ServerVariable))
			}
			key := "admin.tokens_file"
			if role == string(adminapi.CallerRole) {
				key = "listen.tokens_file"
			}
			return p.end(&tokenReport{Name: args[0], Token: token, Line: line, key: key}, nil)
		},
	}
	create.Flags().StringVar(&role, "role", string(adminapi.Viewer), "`ROLE` of the token's owner: caller, self, viewer, editor or admin")
	create.Flags().StringVar(&tenant, "tenant", "", "`TENANT` that the token is for; without it, for all")
	create.Flags().StringVar(&expires, "expires", "", "`WHEN` a token in PostgreSQL ends: 2026-12-01, 72h or 14d; without it never")
	serverFlags(create, &o)
	cmd.AddCommand(create, newTokenList(p), newRemove(p, "token", adminapi.TokensPath))
	return cmd
}

// tokenList is the JSON of "token list".
type tokenList struct {
	Tokens []adminapi.Token `json:"tokens"`
}

func newTokenList(p *program) *cobra.Command {
	return p.asking(&cobra.Command{
		Use:     "list --server ADDRESS",
		Short:   "Show the tokens in PostgreSQL, those that were removed included",
		Example: "  headgate token list --server https://gate:8083 --token-file mine",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (report, error) {
		tokens, err := c.Tokens(ctx)
		return &tokenList{tokens}, err
	})
}

func (r *tokenList) text() string {
	if len(r.Tokens) == 0 {
		return "there are no tokens in PostgreSQL\n"
	}
	rows := [][]string{{"ID", "NAME", "ROLE", "TENANT", "BY", "UNTIL"}}
	for _, t := range r.Tokens {
		end := until(t.ExpiresAt)
		if t.RevokedAt != nil {
			end = "removed " + instant(*t.RevokedAt)
		}
		rows = append(rows, []string{number(t.ID), t.Name, t.Role, cmp.Or(t.Tenant, "all"), t.CreatedBy, end})
	}
	return wording.Table("", rows...)
}

// storeToken has a server make the token.
func (p *program) storeToken(ctx context.Context, o adminclient.Options, wanted *adminapi.TokenRequest) error {
	c, err := connect(o, changeTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	made, err := c.CreateToken(ctx, wanted)
	if err != nil {
		return err
	}
	return p.end(&tokenReport{Name: wanted.Name, Token: made.Secret, ID: made.ID}, nil)
}

func (r *tokenReport) text() string {
	if r.Line == "" {
		return fmt.Sprintf("Give this to %s, it is not shown again:\n%s\n\nIt is token %d: headgate token rm %[3]d takes it back.\n",
			r.Name, r.Token, r.ID)
	}
	return fmt.Sprintf(`Give this to %s, it is not shown again:
%s

Append this to the file that %s names:
%s
`, r.Name, r.Token, r.key, r.Line)
}
