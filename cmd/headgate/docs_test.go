package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
	"github.com/headgate/headgate/internal/testenv"
)

// docsFiles returns the documentation files.
func docsFiles(t *testing.T) []string {
	t.Helper()
	files := []string{"../../README.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/adr/*.md", "../../examples/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		files = append(files, found...)
	}
	return files
}

var (
	fenced = regexp.MustCompile("(?s)(?:^|\n)```(\\w*)\n(.*?)```")
	inline = regexp.MustCompile("`headgate(\\s[^`]*)`")
	// tabled matches the table of commands, which omits the name of the program.
	tabled = regexp.MustCompile("(?s)\\| command \\| what it does \\|\n.*?\n\n")
)

// blocks returns the fenced code blocks of a language.
func blocks(text, kind string) []string {
	var all []string
	for _, found := range fenced.FindAllStringSubmatch(text, -1) {
		if found[1] == kind {
			all = append(all, found[2])
		}
	}
	return all
}

// titled splits a block that begins with a comment into that, which names its file, and the rest.
func titled(block string) (title, rest string) {
	title, rest, _ = strings.Cut(strings.TrimPrefix(block, "# "), "\n")
	return title, rest
}

// typedCommands returns the headgate command lines in a block, without the name of the program.
func typedCommands(block string) []string {
	var all []string
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		if command, ok := strings.CutPrefix(line, "headgate "); ok {
			command, _, _ = strings.Cut(command, " #")
			command, _, _ = strings.Cut(command, " > ")
			command, _, _ = strings.Cut(command, " | ")
			all = append(all, strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(command), "&")))
		}
	}
	return all
}

// shellWords splits a command line into words, respecting quotes.
func shellWords(command string) []string {
	words := regexp.MustCompile(`(?:"[^"]*"|'[^']*'|\S)+`).FindAllString(command, -1)
	for i := range words {
		words[i] = strings.NewReplacer(`"`, "", "'", "").Replace(words[i])
	}
	return words
}

// checkCommandLine checks that the command and its flags exist. A whole command line must also have valid arguments; otherwise it is
// mentioned in a sentence.
func checkCommandLine(words []string, whole bool) error {
	root := newRoot(&program{})
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if whole {
		if err := cmd.ParseFlags(rest); err != nil {
			return err
		}
		if needsSubcommand(cmd) {
			return fmt.Errorf("%s needs a subcommand", cmd.CommandPath())
		}
		return cmd.ValidateArgs(cmd.Flags().Args())
	}
	for _, word := range rest {
		name, flag := strings.CutPrefix(strings.Trim(word, "[]…"), "--")
		name, _, _ = strings.Cut(name, "=")
		if flag && name != "" && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			return fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), name)
		}
		if !flag && needsSubcommand(cmd) {
			return fmt.Errorf("%s has no subcommand %s", cmd.CommandPath(), word)
		}
	}
	return nil
}

// TestDocsCommands checks the subcommands, flags and arguments of every command in the documentation.
func TestDocsCommands(t *testing.T) {
	t.Parallel()
	typed, mentioned := 0, 0
	for _, file := range docsFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
			for _, command := range typedCommands(block[2]) {
				typed++
				if err := checkCommandLine(shellWords(command), true); err != nil {
					t.Errorf("%s: headgate %s: %v", file, command, err)
				}
			}
		}
		prose := fenced.ReplaceAllString(string(text), "\n")
		mentions := inline.FindAllStringSubmatch(prose, -1)
		for row := range strings.Lines(tabled.FindString(prose)) {
			first, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), " |")
			prefix := ""
			for _, code := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(first, -1) {
				words := strings.Fields(code[1])
				if len(words) == 1 && prefix != "" { // of `override set …`, `list`, `rm`
					words = []string{prefix, words[0]}
					if err := checkCommandLine(words, false); err != nil {
						words = words[1:]
					}
				} else if len(words) > 0 {
					prefix = words[0]
				}
				mentions = append(mentions, []string{"", strings.Join(words, " ")})
			}
		}
		for _, mention := range mentions {
			mentioned++
			if err := checkCommandLine(shellWords(mention[1]), false); err != nil {
				t.Errorf("%s: headgate %s: %v", file, strings.TrimSpace(mention[1]), err)
			}
		}
	}
	if typed < 15 || mentioned < 40 {
		t.Errorf("found only %d command lines and %d mentions", typed, mentioned)
	}
	t.Logf("%d command lines, %d mentions", typed, mentioned)
}

// TestCheckCommandLine checks that invalid commands are rejected.
func TestCheckCommandLine(t *testing.T) {
	t.Parallel()
	for command, whole := range map[string]bool{
		"rules aply x": true, "rules apply --yess": false, "nodes x": true, "token": true, "token destroy": false, "migrate --cfg x": true,
		"override set a b": true, "nonsense": false,
	} {
		if err := checkCommandLine(strings.Fields(command), whole); err == nil {
			t.Errorf("%s is accepted", command)
		}
	}
}

// runBy names the test that runs the command lines of each file.
var runBy = map[string]string{
	"../../README.md":                                 "TestReadmeRules, and make quickstart",
	"../../docs/control-plane.md":                     "TestControlPlaneDocs",
	"../../docs/demo.md":                              "TestDemo in bench/demo",
	"../../docs/getting-started.md":                   "TestGettingStarted",
	"../../docs/kubernetes.md":                        "TestRun and TestManifests in internal/charttest",
	"../../docs/install.md":                           "make package",
	"../../docs/migrate-from-envoyproxy-ratelimit.md": "TestDocsRun",
	"../../docs/operations.md":                        "TestOperationsDocs",
	"../../docs/regions.md":                           "TestRegionsWeight",
	"../../docs/service.md":                           "TestDocsRun",
	"../../docs/two-nodes.md":                         "TestTwoNodes",
	"../../examples/control-plane/README.md":          "TestControlPlaneExample",
}

// TestDocsCommandsAreRun checks that a test runs the command lines of every file.
func TestDocsCommandsAreRun(t *testing.T) {
	t.Parallel()
	for _, file := range docsFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
			all = append(all, typedCommands(block[2])...)
		}
		if (runBy[file] != "") != (len(all) > 0) {
			t.Errorf("%s has %d commands, run by %q: %q", file, len(all), runBy[file], all)
		}
	}
}

// TestDocsRun runs the commands that need only a config of envoyproxy/ratelimit or a server without tokens.
func TestDocsRun(t *testing.T) {
	t.Parallel()
	sh := newShell(t)
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	example, err := os.ReadFile("internal/envoyconfig/testdata/example1.txt")
	if err != nil {
		t.Fatal(err)
	}
	config, _, _ := strings.Cut(string(example), "-----\n")
	script := "mkdir config; cat > config/example.yaml <<'END'\n" + config + "END\nset -e\n" +
		strings.Join(blocks(read("migrate-from-envoyproxy-ratelimit.md"), "sh"), "")
	if out, code := sh.run(script); code != 0 || !strings.Contains(out, "0 failed in 1 file") {
		t.Errorf("exit %d: %s", code, out)
	}
	_, file := configure(t, "", watchedRules)
	r := serve(t, "--dev", "--config", file)
	for _, block := range blocks(read("service.md"), "sh") {
		for _, command := range typedCommands(block) {
			command = strings.ReplaceAll("headgate "+command, "http://127.0.0.1:8083", "http://"+r.addressOf("admin"))
			if out, code := sh.run("echo hgt_any > token; " + command); code != 0 || !strings.HasPrefix(out, "allowed: ") {
				t.Errorf("%s: exit %d: %s", command, code, out)
			}
		}
	}
}

// TestControlPlaneDocs runs the commands of docs/control-plane.md with a real PostgreSQL and Redis. Only addresses, ports and the
// paths of secrets and state differ.
func TestControlPlaneDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/control-plane.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("curl"); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	sh := newShell(t)
	dir := t.TempDir()
	for _, block := range blocks(string(text), "yaml") {
		name, rest := titled(block)
		name, _, _ = strings.Cut(name, " ")
		if name == "config.yaml" {
			rest = anyPorts + replaceAll(t, rest, map[string]string{
				"redis://redis.example.com:6379":                                       "redis://" + testenv.Start(t, testenv.Redis).Addr(),
				"postgres://headgate@db.example.com:5432/headgate?sslmode=verify-full": testenv.StartPostgres(t).URL(),
				"/run/secrets/postgres":                                                secretFile(t, "any"),
				"/var/lib/headgate/state":                                              filepath.Join(dir, "state"),
			})
		}
		writeFile(t, filepath.Join(dir, name), rest)
	}
	scripts := strings.Join(blocks(string(text), "sh"), "")
	before, after, ok := strings.Cut(scripts, "headgate serve --config config.yaml &\n")
	if !ok {
		t.Fatal("the commands start no server")
	}
	in := "set -e; cd " + shellwords.Quote(dir) + "\n"
	if out, code := sh.run(in + before); code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	r := serve(t, "--config", filepath.Join(dir, "config.yaml"))
	after = replaceAll(t, after, map[string]string{"http://127.0.0.1:8083": "http://" + r.addressOf("admin")})
	// A node loads published rules with a short delay.
	after = strings.ReplaceAll(after, "headgate nodes\n", "for i in $(seq 100); do headgate nodes && break || sleep 0.1; done\nheadgate nodes\n")
	after = strings.ReplaceAll(after, "curl ", "curl -sS --fail-with-body ")
	out, code := sh.run(in + after)
	for _, want := range []string{
		"applied as version 1", "override 1: search for tenant=acme; expires: ", "after   5,000 requests per minute, burst 1,000",
		"1 node, 0 behind", `"name":"default_per_key"`,
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("exit %d, without %q: %s", code, want, out)
		}
	}
}

// replaceAll replaces texts, each of which must occur.
func replaceAll(t *testing.T, text string, pairs map[string]string) string {
	t.Helper()
	for old, with := range pairs {
		if !strings.Contains(text, old) {
			t.Fatalf("%s is missing in\n%s", old, text)
		}
		text = strings.ReplaceAll(text, old, with)
	}
	return text
}
