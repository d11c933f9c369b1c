package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// cliDocs is the file whose tables are generated from the commands.
const cliDocs = "../../docs/cli.md"

// TestCLIDocs compares the tables of commands in docs/cli.md with the commands. With -update it writes them.
func TestCLIDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(cliDocs)
	if err != nil {
		t.Fatal(err)
	}
	before, _, ok := strings.Cut(string(text), "<!-- generated")
	if !ok {
		t.Fatal("docs/cli.md has no generated part")
	}
	want := before + "<!-- generated from the commands: go test ./cmd/headgate -run TestCLIDocs -update -->\n" + commandTables()
	if *update {
		if err := os.WriteFile(cliDocs, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Error("docs/cli.md differs from the commands: go test ./cmd/headgate -run TestCLIDocs -update")
	}
}

// commandTables returns a table for each group.
func commandTables() string {
	var b strings.Builder
	root := newRoot(&program{})
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "\n### %s\n\n| command and arguments | purpose | flags |\n|---|---|---|\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID {
				commandRows(&b, cmd)
			}
		}
	}
	return b.String()
}

// usedFlag matches a flag in a usage line, with its value. Flags have a column of their own.
var usedFlag = regexp.MustCompile(`\[?--[a-z-]+(?: [A-Z]+\b| envoy-ratelimit)?]?(?:\.\.\.)?`)

// needsSubcommand reports whether a command does nothing itself.
func needsSubcommand(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && cmd.LocalFlags().Lookup("server") == nil
}

func commandRows(b *strings.Builder, cmd *cobra.Command) {
	defer func() {
		for _, child := range cmd.Commands() {
			commandRows(b, child)
		}
	}()
	if needsSubcommand(cmd) {
		return
	}
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	arguments = strings.NewReplacer("[flags]", "", "(", "", ")", "", "|", "").Replace(usedFlag.ReplaceAllString(arguments, ""))
	usage := strings.Join(append(strings.Fields(cmd.CommandPath())[1:], strings.Fields(arguments)...), " ")
	var flags []string
	server := false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "server", "token-file", "ca-file", "cert-file", "key-file":
			server = true
		case "help", "output":
		default:
			flags = append(flags, "`--"+f.Name+"`")
		}
	})
	if server {
		flags = append(flags, "[server](#server)")
	}
	fmt.Fprintf(b, "| `%s` | %s | %s |\n", usage, cmd.Short, strings.Join(flags, ", "))
}

// TestExitCodesDocs checks that the exit codes in docs/cli.md are those of the help.
func TestExitCodesDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(cliDocs)
	if err != nil {
		t.Fatal(err)
	}
	_, codes, ok := strings.Cut(start(t, "--help").out, "Exit codes:\n")
	if !ok {
		t.Fatal("the help has no exit codes")
	}
	codes, _, _ = strings.Cut(codes, "\n\n")
	for line := range strings.Lines(codes) {
		code, meaning, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if row := "| " + code + " | " + meaning + " |"; !strings.Contains(string(text), row) {
			t.Errorf("docs/cli.md lacks %s", row)
		}
	}
}
