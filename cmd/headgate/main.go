// Command headgate is what operators type: it runs the server, checks, tests and compares rules, checks configs, says why a
// request is denied, and changes rules, overrides and exemptions over a server's admin API.
//
// It knows how to put the other packages together, and their answers on one screen or into JSON. It decides nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // rules name time zones, and a bare image knows none

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code, text := ending(run(ctx, os.Args[1:], os.Stdout))
	stop()
	fmt.Fprint(os.Stderr, text)
	os.Exit(code)
}

// run is the program. What it was asked for goes to out; ending tells what its error means.
func run(ctx context.Context, args []string, out io.Writer) error {
	p := &program{out: out, log: os.Stderr}
	if in := terminal(os.Stdin); in != nil {
		p.in = in
	}
	return p.run(ctx, args)
}

func (p *program) run(ctx context.Context, args []string) error {
	root := newRoot(p) //nolint:contextcheck // commands get theirs when they run
	root.SetArgs(args)
	root.SetOut(p.out)
	root.SetErr(p.out)
	return root.ExecuteContext(ctx)
}

func newRoot(p *program) *cobra.Command {
	root := &cobra.Command{
		Use: "headgate",
		Long: `Rate limits for APIs: run the server, check rules, compare them, and say why a request is denied.

Exit code: 0 the answer is good; 1 it is not (problems, failures, changes, a denial); 2 there is no answer.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	rules := &cobra.Command{Use: "rules", Short: "Check, test and compare rule files, and change the rules of a server"}
	rules.AddCommand(newValidate(p), newTest(p), newDiff(p), newImport(p), newSchema(p),
		newApply(p), newExport(p), newHistory(p), newRollback(p))
	server := &cobra.Command{Use: "config", Short: "Check and show the config of a server"}
	server.AddCommand(newConfigValidate(p), newConfigShow(p))
	root.AddCommand(server, newExplain(p), rules, newServe(p), newVersion(p), newMigrate(p), newToken(p),
		newOverride(p), newExempt(p), newUsage(p), newReset(p), newGrant(p), newNodesCommand(p),
		newTop(p), newDenials(p))
	root.PersistentFlags().StringVar(&p.output, "output", "human", "`FORMAT`: human, or json with durations in seconds")
	root.PersistentPreRunE = p.checkOutput
	root.SetFlagErrorFunc(usage)
	root.CompletionOptions.HiddenDefaultCmd = true
	setUp(root)
	asked := root.Flags().Bool("version", false, "the same as headgate version")
	help := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *asked {
			return p.showVersion()
		}
		return help(cmd, args)
	}
	return root
}

// setUp gives a command and those below it the same manners: what is no command is denied, and mistakes take one line.
func setUp(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	check := cmd.Args
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		check = knownCommand
	}
	if check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return usage(cmd, check(cmd, args)) }
	}
	for _, child := range cmd.Commands() {
		setUp(child)
	}
}

func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("there is no command %q; did you mean %q?", args[0], near[0])
	}
	return fmt.Errorf("there is no command %q", args[0])
}

// exitError is an ending with a code of its own, and a text for standard error unless all is said already.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// no ends a command whose answer is printed, and is not good.
func no() error { return &exitError{code: 1} }

// verdict ends a command whose answer is printed, and may be good.
func verdict(good bool) error {
	if good {
		return nil
	}
	return no()
}

// usage ends a command that was mistyped. It is nil if err is.
func usage(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{2, fmt.Sprintf("%s: %s\nsee %[1]s --help\n", cmd.CommandPath(), err)}
}

// ending is the exit code, and what to print on standard error.
func ending(err error) (code int, text string) {
	var exit *exitError
	switch {
	case err == nil:
		return 0, ""
	case errors.As(err, &exit):
		return exit.code, exit.text
	}
	return 2, "headgate: " + err.Error() + "\n"
}
