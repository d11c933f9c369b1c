package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminclient"
)

// changeTimeout is longer than a server waits for its database, so that it can say that this is away.
const changeTimeout = 30 * time.Second

// errNoServer is for those who have not said which server to ask.
var errNoServer = errors.New("say which server to ask: give --server ADDRESS or set " + adminclient.ServerVariable)

// serverFlags are the flags that say which server to ask.
func serverFlags(cmd *cobra.Command, o *adminclient.Options) {
	flags := cmd.Flags()
	flags.StringVar(&o.Server, "server", "", "`ADDRESS` of a server's listen.admin, http://127.0.0.1:8083; without it what "+
		adminclient.ServerVariable+" says")
	flags.StringVar(&o.TokenFile, "token-file", "", "`FILE` with the token for the server")
	flags.StringVar(&o.CAFile, "ca-file", "", "`FILE` with who signed the server's certificate, if that is nobody known")
}

// fromVariable takes the server of the environment if no --server was given, not even an empty one.
func fromVariable(cmd *cobra.Command, o *adminclient.Options) {
	if !cmd.Flags().Changed("server") {
		o.Server = os.Getenv(adminclient.ServerVariable)
	}
}

func connect(o adminclient.Options, timeout time.Duration) (*adminclient.Client, error) {
	o.Server, o.Token, o.Timeout = withScheme(o.Server, "http://"), os.Getenv(adminclient.TokenVariable), timeout
	return adminclient.New(o)
}

// asking makes a command one that asks a server and prints a report, and gives it the flags for that. Nothing is printed if there
// is an error other than a verdict.
func (p *program) asking(
	cmd *cobra.Command, do func(ctx context.Context, c *adminclient.Client, args []string) (report, error),
) *cobra.Command {
	var o adminclient.Options
	serverFlags(cmd, &o)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if fromVariable(cmd, &o); o.Server == "" {
			return usage(cmd, errNoServer)
		}
		c, err := connect(o, changeTimeout)
		if err != nil {
			return err
		}
		defer c.Close()
		r, err := do(cmd.Context(), c, args)
		var verdict *exitError
		var wrong *usageError
		switch {
		case errors.As(err, &wrong):
			return usage(cmd, wrong.error)
		case r == nil || err != nil && !errors.As(err, &verdict):
			return err
		}
		return p.end(r, err)
	}
	return cmd
}

// usageError is about what was typed.
type usageError struct{ error }
