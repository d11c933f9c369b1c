package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminclient"
)

// adminTimeout bounds a call of the admin API. It is longer than a server waits for its database, so that the server can report
// that the database is unavailable.
const adminTimeout = 30 * time.Second

// errNoServer is the usage error of a command that needs a server.
var errNoServer = errors.New("no server given: use --server ADDRESS or set " + adminclient.ServerVariable)

// serverFlags adds the flags that select a server and its credentials.
func serverFlags(cmd *cobra.Command, o *adminclient.Options) {
	flags := cmd.Flags()
	flags.StringVar(&o.Server, "server", "", "`ADDRESS` of the server's listen.admin, such as http://127.0.0.1:8083 (default $"+
		adminclient.ServerVariable+")")
	flags.StringVar(&o.TokenFile, "token-file", "", "`FILE` with the admin API token (default: the token in $"+adminclient.TokenVariable+")")
	flags.StringVar(&o.CAFile, "ca-file", "", "`FILE` with the CA certificate of the server (default: the system's CAs)")
	flags.StringVar(&o.CertFile, "cert-file", "", "`FILE` with a client certificate, if the server requires one")
	flags.StringVar(&o.KeyFile, "key-file", "", "`FILE` with the key of --cert-file")
}

// serverFromEnv reads the server from the environment if --server is absent. An empty --server disables the variable.
func serverFromEnv(cmd *cobra.Command, o *adminclient.Options) {
	if !cmd.Flags().Changed("server") {
		o.Server = os.Getenv(adminclient.ServerVariable)
	}
}

func connect(o adminclient.Options, timeout time.Duration) (*adminclient.Client, error) {
	o.Server, o.Token, o.Timeout = withScheme(o.Server, "http://"), os.Getenv(adminclient.TokenVariable), timeout
	return adminclient.New(o)
}

// serverCommand adds the server flags to cmd and sets its RunE: connect to the server, call do, print the report. If do fails with
// anything but an exitError, the report is not printed.
func (p *program) serverCommand(
	cmd *cobra.Command, do func(ctx context.Context, c *adminclient.Client, args []string) (report, error),
) *cobra.Command {
	var o adminclient.Options
	serverFlags(cmd, &o)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if serverFromEnv(cmd, &o); o.Server == "" {
			return usage(cmd, errNoServer)
		}
		c, err := connect(o, adminTimeout)
		if err != nil {
			return err
		}
		defer c.Close()
		r, err := do(cmd.Context(), c, args)
		var exit *exitError
		var badUsage *usageError
		switch {
		case errors.As(err, &badUsage):
			return usage(cmd, badUsage.error)
		case r == nil || err != nil && !errors.As(err, &exit):
			return err
		}
		return p.finish(r, err)
	}
	return cmd
}

// usageError marks an error in the arguments or flags.
type usageError struct{ error }
