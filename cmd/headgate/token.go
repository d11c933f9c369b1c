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
	// key is the config key of the tokens file that Line belongs in.
	key string
	// Line is the line for the server's tokens file. It is "" if the token is stored in PostgreSQL, where it has an ID.
	Line string `json:"line"`
	ID   int64  `json:"id,omitzero"`
}

func newToken(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Create, list and revoke tokens", Example: "  headgate token create gateway --role caller"}
	var role, tenant, expires string
	var o adminclient.Options
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a token",
		Long: `Create a token and print it with a line for the server's tokens file.

Append the line to the file at admin.tokens_file of the server; running servers reload it within a second. The line
contains only the hash. The token is shown once and not stored. NAME identifies the owner. To revoke the token, remove the
line.

With --server or $HEADGATE_SERVER, the hash is stored in the server's PostgreSQL instead, and all servers of that database
accept the token immediately. This requires the token of an admin. Revoke the token with headgate token rm. If the variable
is set, --server "" prints a line instead.

Roles:
  viewer  read everything
  editor  also change rules, overrides and exemptions, and give units back
  admin   also manage tokens and read profiles
  self    read the usage of the tenant or, without --tenant, of the user named NAME; for customers
  caller  check requests, without access to the admin API; append the line to the file at listen.tokens_file, and send the
          token in X-Headgate-Token

With --tenant, the token is restricted to the data of that tenant.`,
		Example: "  headgate token create ann\n  headgate token create nginx --role caller\n  headgate token create bob --role editor --tenant acme\n" +
			"  headgate token create bob --expires 14d --server https://gate:8083 --token-file mine",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var rights []string
			if cmd.Flags().Changed("role") {
				rights = append(rights, role)
			}
			if cmd.Flags().Changed("tenant") { // an empty tenant is an error: the token would be valid for all tenants
				rights = append(rights, "tenant="+tenant)
			}
			if role != string(adminapi.CallerRole) { // tokens of callers are in files
				serverFromEnv(cmd, &o)
			}
			token, line, err := adminapi.NewToken(args[0], rights...)
			if err != nil {
				return usage(cmd, err)
			}
			switch at, err := parseExpiry(expires, time.Now()); {
			case err != nil:
				return usage(cmd, fmt.Errorf("--expires: %w", err))
			case o.Server != "" && role == string(adminapi.CallerRole):
				return usage(cmd, errors.New("--role caller: tokens of callers are in files, not in PostgreSQL: omit --server"))
			case o.Server != "":
				return p.storeToken(cmd.Context(), o, &adminapi.TokenRequest{Name: args[0], Role: role, Tenant: tenant, ExpiresAt: at})
			case o != (adminclient.Options{}) || expires != "":
				return usage(cmd, errors.New("no server given to store the token: use --server ADDRESS or set "+adminclient.ServerVariable))
			}
			key := "admin.tokens_file"
			if role == string(adminapi.CallerRole) {
				key = "listen.tokens_file"
			}
			return p.finish(&tokenReport{Name: args[0], Token: token, Line: line, key: key}, nil)
		},
	}
	create.Flags().StringVar(&role, "role", string(adminapi.Viewer), "`ROLE` of the token: viewer, editor, admin, self or caller")
	create.Flags().StringVar(&tenant, "tenant", "", "restrict the token to this `TENANT` (default: all tenants)")
	expiresFlag(create.Flags(), &expires, "expiry `TIME` of a token in PostgreSQL: "+expiryForms+" (default: never)")
	serverFlags(create, &o)
	cmd.AddCommand(create, newTokenList(p), newRemove(p, "token", adminapi.TokensPath))
	return cmd
}

// tokenList is the JSON of "token list".
type tokenList struct {
	Tokens []adminapi.Token `json:"tokens"`
}

func newTokenList(p *program) *cobra.Command {
	return p.serverCommand(&cobra.Command{
		Use:     "list --server ADDRESS",
		Short:   "List the tokens in PostgreSQL, including revoked ones",
		Example: "  headgate token list --server https://gate:8083 --token-file mine",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (report, error) {
		tokens, err := c.Tokens(ctx)
		return &tokenList{tokens}, err
	})
}

func (r *tokenList) text() string {
	if len(r.Tokens) == 0 {
		return "no tokens in PostgreSQL\n"
	}
	rows := [][]string{{"ID", "NAME", "ROLE", "TENANT", "CREATED BY", "EXPIRES"}}
	for _, t := range r.Tokens {
		expires := formatExpiry(t.ExpiresAt)
		if t.RevokedAt != nil {
			expires = "revoked " + formatTime(*t.RevokedAt)
		}
		rows = append(rows, []string{number(t.ID), t.Name, t.Role, cmp.Or(t.Tenant, "all"), t.CreatedBy, expires})
	}
	return wording.Table("", rows...)
}

// storeToken creates the token on a server, which stores it in PostgreSQL.
func (p *program) storeToken(ctx context.Context, o adminclient.Options, wanted *adminapi.TokenRequest) error {
	c, err := connect(o, adminTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	made, err := c.CreateToken(ctx, wanted)
	if err != nil {
		return err
	}
	return p.finish(&tokenReport{Name: wanted.Name, Token: made.Secret, ID: made.ID}, nil)
}

func (r *tokenReport) text() string {
	if r.Line == "" {
		return fmt.Sprintf("Token for %s (not shown again):\n%s\n\nIts ID is %d. Revoke it with: headgate token rm %[3]d\n",
			r.Name, r.Token, r.ID)
	}
	return fmt.Sprintf(`Token for %s (not shown again):
%s

Append this line to the file at %s:
%s
`, r.Name, r.Token, r.key, r.Line)
}
