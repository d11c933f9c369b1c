package main

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminclient"
)

// everyCommand calls do for each command, with the words that name it.
func everyCommand(do func(cmd *cobra.Command, words []string)) {
	var walk func(cmd *cobra.Command, words []string)
	walk = func(cmd *cobra.Command, words []string) {
		do(cmd, words)
		for _, child := range cmd.Commands() {
			walk(child, append(words[:len(words):len(words)], child.Name()))
		}
	}
	root := newRoot(&program{})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	walk(root, nil)
}

// countingServer starts a server that counts its requests and rejects all of them.
func countingServer(t *testing.T) (address string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	server := newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(`{"detail": "rejected by the test server"}`))
	}))
	return server.URL, calls
}

// TestHelp requests the help of every command in all supported ways. The command must only print the help.
func TestHelp(t *testing.T) {
	address, calls := countingServer(t)
	t.Setenv(adminclient.ServerVariable, address)
	commands := 0
	everyCommand(func(cmd *cobra.Command, words []string) {
		commands++
		path := strings.Join(append([]string{"headgate"}, words...), " ")
		ways := [][]string{
			append(words[:len(words):len(words)], "--help"),
			append(words[:len(words):len(words)], "-h"),
			append([]string{"help"}, words...),
		}
		if !cmd.HasSubCommands() {
			ways = append(ways, append(words[:len(words):len(words)], "17", "--help"),
				append(words[:len(words):len(words)], "a", "b", "c", "--help"))
		}
		for _, args := range ways {
			o := start(t, args...)
			if o.code != 0 || o.errors != "" || !strings.Contains(o.out, "Usage:\n  "+path) {
				t.Errorf("headgate %s: %+v", strings.Join(args, " "), o)
			}
			for line := range strings.Lines(o.out) {
				if strings.Contains(line, "headgate  ") || strings.Contains(line, "%!") {
					t.Errorf("headgate %s prints %q", strings.Join(args, " "), line)
				}
			}
		}
		if cmd.Example == "" && cmd.Name() != "completion" && cmd.Name() != "help" && cmd.Parent().Name() != "completion" {
			t.Errorf("%s has no example", path)
		}
	})
	if n := calls.Load(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
	t.Logf("%d commands", commands)
}

// serverArguments lists the other arguments of each command with --server.
var serverArguments = map[string][]string{
	"headgate denials":         {},
	"headgate exempt add":      {"rule", "--user", "ann"},
	"headgate exempt list":     {},
	"headgate exempt rm":       {"1"},
	"headgate explain":         {"/x"},
	"headgate grant":           {"rule", "user=ann", "1"},
	"headgate nodes":           {},
	"headgate override import": {"testdata/overrides-good.csv"},
	"headgate override list":   {},
	"headgate override rm":     {"1"},
	"headgate override set":    {"rule", "user=ann", "5/minute"},
	"headgate regions":         {},
	"headgate regions drain":   {"eu"},
	"headgate regions restore": {"eu"},
	"headgate regions weight":  {"eu=1"},
	"headgate reset":           {"rule", "user=ann"},
	"headgate release":         {"rule", "user=ann", "0123456789abcdef"},
	"headgate rules apply":     {"testdata/rules.yaml"},
	"headgate rules export":    {},
	"headgate rules history":   {},
	"headgate rules rollback":  {"1"},
	"headgate token create":    {"ann"},
	"headgate token list":      {},
	"headgate token rm":        {"1"},
	"headgate top":             {},
	"headgate usage":           {"user=ann"},
}

// TestServerVariable checks for each command with --server that HEADGATE_SERVER selects the server, and that --server takes precedence.
func TestServerVariable(t *testing.T) {
	address, calls := countingServer(t)
	other, otherCalls := countingServer(t)
	seen := 0
	everyCommand(func(cmd *cobra.Command, words []string) {
		if cmd.Flags().Lookup("server") == nil || cmd.Name() == "status" { // status works without, and prints what fails as a note
			return
		}
		seen++
		more, known := serverArguments[strings.Join(append([]string{"headgate"}, words...), " ")]
		if !known {
			t.Errorf("%v: missing in serverArguments", words)
			return
		}
		args := slices.Concat(words, more)
		t.Setenv(adminclient.ServerVariable, address)
		calls.Store(0)
		if o := start(t, args...); o.code != 2 || calls.Load() == 0 || !strings.Contains(o.errors, address+": rejected by the test server") {
			t.Errorf("headgate %v: %+v", args, o)
		}
		calls.Store(0)
		if o := start(t, append(args, "--server", other)...); o.code != 2 || calls.Load() > 0 || otherCalls.Swap(0) == 0 {
			t.Errorf("headgate %v --server: %+v", args, o)
		}
		t.Setenv(adminclient.ServerVariable, "")
		if o := start(t, args...); cmd.Name() != "create" && (o.code != 2 || !strings.Contains(o.errors, "HEADGATE_SERVER")) {
			t.Errorf("headgate %v without a server: %+v", args, o)
		}
	})
	if seen != len(serverArguments) {
		t.Errorf("%d commands take --server, and serverArguments has %d", seen, len(serverArguments))
	}
	t.Setenv(adminclient.ServerVariable, address)
	calls.Store(0)
	for _, args := range [][]string{
		{"explain", "--rules", "testdata/rules.yaml", "/x"},
		{"token", "create", "ann", "--server", ""},
	} {
		if o := start(t, args...); o.code != 0 || calls.Load() > 0 {
			t.Errorf("headgate %v calls the server: %+v", args, o)
		}
	}
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"human", "json"} {
		flag, command := start(t, "--version", "--output", format), start(t, "version", "--output", format)
		if flag != command || flag.code != 0 {
			t.Errorf("%s: %+v, not %+v", format, flag, command)
		}
	}
}

// TestCompletion checks what shells complete.
func TestCompletion(t *testing.T) {
	o := startControlPlane(t)
	o.do(0, "", "rules", "apply", o.file("rules.yaml", operatedRules), "--yes")
	t.Setenv(adminclient.ServerVariable, "http://"+o.addressOf("admin"))
	for words, want := range map[string]string{
		"init n":                   "nginx",
		"rules validate -o ":       "human\njson\nyaml",
		"token create ann --role ": "viewer\neditor\nadmin\nself\ncaller",
		"serve --log-level ":       "debug\ninfo\nwarn\nerror",
		"override set se":          "search",
		"exempt add l":             "login",
		"grant ":                   "login\nsearch",
		"top --rule s":             "search",
		"override set search ":     "",
	} {
		args := append([]string{"__complete"}, strings.Split(words, " ")...)
		if cmd := args[1]; cmd != "init" && cmd != "rules" && cmd != "token" && cmd != "serve" { // before the word that is completed
			args = slices.Insert(args, len(args)-1, "--token-file", o.args[3])
			if args[len(args)-4] == "--rule" { // whose value is the word
				args = append(args[:len(args)-4], "--token-file", o.args[3], "--rule", args[len(args)-1])
			}
		}
		got := start(t, args...)
		found, _, _ := strings.Cut(got.out, ":4\n")
		if got.code != 0 || strings.TrimSpace(found) != want {
			t.Errorf("%s: %q, want %q: %+v", words, found, want, got)
		}
	}
}

// TestCompletionOfUnknownShell checks that a script that asks for the completion of another shell notices.
func TestCompletionOfUnknownShell(t *testing.T) {
	t.Parallel()
	if o := start(t, "completion", "tcsh"); o.code != 2 || !strings.Contains(o.errors, `unknown command "tcsh"`) {
		t.Errorf("%+v", o)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if o := start(t, "completion", shell); o.code != 0 || !strings.Contains(o.out, "headgate") {
			t.Errorf("%+v", o)
		}
	}
}
