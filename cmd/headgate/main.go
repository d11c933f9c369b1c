// Command headgate is the command line of Headgate. It runs the server, validates, tests and compares rules, validates configs,
// explains why a request is denied, and changes rules, overrides and exemptions through a server's admin API.
//
// It wires the other packages together and formats their results as text or JSON. It contains no rate-limiting logic.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // rules name time zones, and a minimal image has no zone database

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process immediately
	code, text := exitStatus(run(ctx, os.Args[1:], os.Stdout))
	stop()
	fmt.Fprint(os.Stderr, text)
	os.Exit(code)
}

// run executes one command line and writes its result to out. exitStatus converts the error into an exit code.
func run(ctx context.Context, args []string, out io.Writer) error {
	p := &program{out: out, log: os.Stderr}
	if in := terminal(os.Stdin); in != nil {
		p.in = in
	}
	return p.run(ctx, args)
}

func (p *program) run(ctx context.Context, args []string) error {
	root := newRoot(p) //nolint:contextcheck // each command receives its context when it runs
	root.SetArgs(args)
	root.SetOut(p.out)
	root.SetErr(p.out)
	root.InitDefaultCompletionCmd() // which would be added without the conventions
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			applyConventions(cmd)
		}
	}
	return root.ExecuteContext(ctx)
}

func newRoot(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:   "headgate",
		Short: "limit the rate of API requests", // of the manual page; the help shows Long
		Long: `Headgate limits the rate of API requests.

Run the server, validate and compare rules, find out what is wrong, and explain why a request is denied.

Exit codes:
  0  success
  1  negative result: problems found, tests failed, rules differ, request denied
  2  error`,
		Example:       "  headgate serve --dev\n  headgate init nginx\n  headgate doctor --config /etc/headgate/config.yaml",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	rules := &cobra.Command{
		Use: "rules", Short: "Validate, test and compare rule files; manage the rules of a server",
		Example: "  headgate rules validate rules.yaml\n  headgate rules apply rules.yaml --dry-run --server https://gate:8083",
	}
	rules.AddCommand(newValidate(p), newTest(p), newDiff(p), newImport(p), newSchema(p),
		newApply(p), newExport(p), newHistory(p), newRollback(p))
	server := &cobra.Command{Use: "config", Short: "Validate and show a server config", Example: "  headgate config validate /etc/headgate/config.yaml"}
	server.AddCommand(newConfigValidate(p), newConfigShow(p))
	addGroup(root, "run", "Run", newInit(p), newServe(p), newMigrate(p), newToken(p))
	addGroup(root, "rules", "Rules and config", rules, server)
	addGroup(root, "diagnose", "Diagnose", newDoctor(p), newStatus(p), newExplain(p), newTop(p), newDenials(p), newUsage(p), newNodesCommand(p), newRegions(p))
	addGroup(root, "operate", "Operate", newOverride(p), newExempt(p), newReset(p), newGrant(p), newRelease(p))
	addGroup(root, "other", "Other", newVersion(p))
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	root.AddCommand(newMan(p))
	root.PersistentFlags().StringVarP(&p.output, "output", "o", outputHuman, "output `FORMAT`: human, json or yaml; durations in json and yaml are in seconds")
	root.PersistentPreRunE = p.checkOutput
	root.SetFlagErrorFunc(usage)
	applyConventions(root)
	addCompletions(root)
	version := root.Flags().Bool("version", false, "print the version, like headgate version")
	help := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			return p.showVersion()
		}
		return help(cmd, args)
	}
	return root
}

// addGroup adds commands under a heading of the help.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title + ":"})
	for _, c := range commands {
		c.GroupID = id
		root.AddCommand(c)
	}
}

// applyConventions makes a command and its subcommands reject unknown commands and report usage errors on one line.
func applyConventions(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	check := cmd.Args
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2
		if cmd.RunE == nil {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		check = rejectUnknownCommand
	}
	if check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return usage(cmd, check(cmd, args)) }
	}
	for _, child := range cmd.Commands() {
		applyConventions(child)
	}
}

func rejectUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %q; did you mean %q?", args[0], near[0])
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// exitError ends the program with a specific exit code. Its text goes to standard error; it is empty if the report says everything.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// failure returns the error of a command whose printed result is negative: exit code 1 without further text.
func failure() error { return &exitError{code: 1} }

// failUnless returns nil if the printed result is positive, and failure() otherwise.
func failUnless(ok bool) error {
	if ok {
		return nil
	}
	return failure()
}

// usage returns the error of a mistyped command line: exit code 2, with a pointer to --help. It returns nil if err is nil.
func usage(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{2, fmt.Sprintf("%s: %s\nsee %[1]s --help\n", cmd.CommandPath(), err)}
}

// exitStatus returns the exit code of the program and the text for standard error.
func exitStatus(err error) (code int, text string) {
	var exit *exitError
	switch {
	case err == nil:
		return 0, ""
	case errors.As(err, &exit):
		return exit.code, exit.text
	}
	return 2, "headgate: " + escapeControl(err.Error()) + "\n"
}
