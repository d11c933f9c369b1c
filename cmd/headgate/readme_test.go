package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeExplain runs the explain command of the README with its rules, and compares the output, except for times and addresses.
func TestReadmeExplain(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, block := range blocks(string(readme), "yaml") {
		name, _, _ := strings.Cut(strings.TrimPrefix(block, "# "), "\n")
		writeFile(t, filepath.Join(dir, name), block)
	}
	command, want, ok := strings.Cut(screen, "\n")
	if rules == "" || !ok {
		t.Fatal("the README has no rules.yaml or no explain block")
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	const readmeAddress = "redis://localhost:6379"
	address := "redis://" + testenv.Start(t, testenv.Redis).Addr()
	login := headgate.Attributes{"method": "POST", "path": "/api/v1/login", "ip": "192.0.2.1"}
	chargeBy(t, file, redisstore.Options{Address: address}, "", 12, login)

	args := strings.Fields(command)
	for i := range args {
		args[i] = strings.Replace(strings.Replace(args[i], readmeAddress, address, 1), "rules.yaml", file, 1)
	}
	o := start(t, args[1:]...)
	got := strings.ReplaceAll(strings.ReplaceAll(o.out, address, readmeAddress), file, "rules.yaml")
	varies := regexp.MustCompile(`\d+ of 50,000 +(in 1 s +)?|\d+ s\b|at 20\S+|version \w{12}| +`)
	if o.code != 1 || varies.ReplaceAllString(got, " ") != varies.ReplaceAllString(want, " ") {
		t.Errorf("exit %d; the README shows\n%s\nthe command prints\n%s", o.code, want, got)
	}
}
