package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

// TestReadmeExplain makes the README's screen come true: its rules, its command, its answer, but for times and addresses.
func TestReadmeExplain(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var rules, screen string
	for i, block := range strings.Split(string(readme), "```") {
		if i%2 == 1 && strings.HasPrefix(block, "yaml\n# rules.yaml\n") {
			rules = strings.TrimPrefix(block, "yaml\n")
		}
		if i%2 == 1 && strings.HasPrefix(block, "\n$ headgate explain ") {
			screen = strings.TrimPrefix(block, "\n$ ")
		}
	}
	command, want, ok := strings.Cut(screen, "\n")
	if rules == "" || !ok {
		t.Fatal("the README has no rules.yaml, or no explain")
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	const standsFor = "redis://localhost:6379"
	address := "redis://" + testenv.Start(t, testenv.Redis).Addr()
	login := headgate.Attributes{"method": "POST", "path": "/api/v1/login", "ip": "192.0.2.1"}
	chargeBy(t, file, redisstore.Options{Address: address}, "", 12, login)

	args := strings.Fields(command)
	for i := range args {
		args[i] = strings.Replace(strings.Replace(args[i], standsFor, address, 1), "rules.yaml", file, 1)
	}
	o := start(t, args[1:]...)
	got := strings.ReplaceAll(strings.ReplaceAll(o.out, address, standsFor), file, "rules.yaml")
	varies := regexp.MustCompile(`\d+ of 50,000 +(in 1 s +)?|\d+ s\b|at 20\S+|version \w{12}| +`)
	if o.code != 1 || varies.ReplaceAllString(got, " ") != varies.ReplaceAllString(want, " ") {
		t.Errorf("exit %d; the README says\n%s\nbut it prints\n%s", o.code, want, got)
	}
}
