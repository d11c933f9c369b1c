package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/ruledoc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// clearKey is an API key that appears in plain text in testdata. No output may contain it.
const clearKey = "key-in-the-clear-4711"

// outcome is the exit code and the output of one run of the program.
type outcome struct {
	code        int
	out, errors string
}

// start runs the program in this process, and checks that the output does not contain clearKey.
func start(t *testing.T, args ...string) outcome {
	t.Helper()
	var out strings.Builder
	code, text := exitStatus(run(t.Context(), args, &out))
	if all := out.String() + text; strings.Contains(all, clearKey) {
		t.Errorf("%v shows the API key:\n%s", args, all)
	}
	return outcome{code, out.String(), text}
}

// rulesVersion matches the version of the rules, which golden files omit because any change of the rule format changes it.
var rulesVersion = regexp.MustCompile(`version [0-9a-f]{12}`)

// TestGolden runs the arguments above the dashes in each golden file, and compares exit code, standard output and standard error
// with the text below the dashes.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			args, want, _ := strings.Cut(string(data), "\n-----\n")
			o := start(t, strings.Fields(args)...)
			got := fmt.Sprintf("exit %d\n%s", o.code, o.out)
			if o.errors != "" {
				got += "standard error:\n" + o.errors
			}
			got = rulesVersion.ReplaceAllString(got, "version XXXXXXXXXXXX")
			if *update {
				if err := os.WriteFile(file, []byte(args+"\n-----\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("headgate %s\ngot:\n%s\nwant:\n%s", args, got, want)
			}
		})
	}
}

// startJSON runs the program with --output json and decodes the complete output strictly into T.
func startJSON[T any](t *testing.T, code int, args ...string) T {
	t.Helper()
	o := start(t, append(args, "--output", "json")...)
	if o.code != code || o.errors != "" {
		t.Fatalf("%v: exit %d, want %d: %s%s", args, o.code, code, o.errors, o.out)
	}
	text, versioned := strings.CutPrefix(o.out, "{\n  \"version\": 1,\n")
	if !versioned || strings.Contains(o.out, `\u00`) {
		t.Errorf("%v: version is not the first key, or characters are escaped:\n%s", args, o.out)
	}
	var v T
	decoder := json.NewDecoder(strings.NewReader("{" + text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, o.out)
	}
	return v
}

func TestJSON(t *testing.T) {
	t.Parallel()
	document, err := ruledoc.Load("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	v := startJSON[validateReport](t, 0, "rules", "validate", "testdata/rules.yaml")
	if !v.OK || v.Rules != 7 || v.Overrides != 2 || v.Exemptions != 1 || v.Files != 1 || v.Mode != "enforce" ||
		v.RulesVersion != document.Rules.Version() || v.Problems == nil {
		t.Errorf("validate: %+v", v)
	}
	v = startJSON[validateReport](t, 1, "rules", "validate", "testdata/bad.yaml")
	if v.OK || len(v.Problems) != 3 || v.Problems[0].Line != 2 || v.Problems[0].Rule != "login" {
		t.Errorf("validate: %+v", v)
	}
	r := startJSON[testReport](t, 2, "rules", "test", "testdata/failing_test.yaml", "testdata/broken_test.yaml")
	if r.Passed != 1 || r.Failed != 1 || r.Broken != 1 || len(r.Files) != 2 || len(r.Files[0].Tests) != 2 ||
		len(r.Files[0].Tests[0].Failures) != 1 || !strings.Contains(r.Files[1].Error, "reqest") {
		t.Errorf("test: %+v", r)
	}
	d := startJSON[diffReport](t, 1, "rules", "diff", "testdata/old.yaml", "testdata/new.yaml")
	if d.Old.Rules != 8 || d.New.Path != "testdata/new.yaml" || len(d.StartAnew) != 2 || d.Effects["looser"] == 0 {
		t.Errorf("diff: %+v", d)
	}
	b := startJSON[versionReport](t, 0, "version")
	if b.Headgate == "" || b.Go == "" || b.Platform == "" {
		t.Errorf("version: %+v", b)
	}
	var schema map[string]any
	o := start(t, "rules", "schema")
	if err := json.Unmarshal([]byte(o.out), &schema); err != nil || o.code != 0 || schema["$schema"] == nil {
		t.Errorf("schema: %+v", o)
	}
}

func TestExplainJSON(t *testing.T) {
	t.Parallel()
	e := startJSON[explainReport](t, 1, "explain", "--rules", "testdata/rules.yaml", "--cost", "2", "GET", "/reports/7",
		"tenant=acme", "user=ann", "header.x-rows=3")
	if e.Allowed || e.RetryAfter != nil || len(e.Limits) != 3 || e.Redis != "" || e.Request["path"] != "/reports/7" {
		t.Fatalf("explain: %+v", e)
	}
	l := e.Limits[0]
	if l.Rule != "exports" || l.Name != "peak" || l.Cost != 6 || l.Capacity != 5 || l.Used != 0 || l.Remaining != 5 ||
		l.RetryAfter != nil || l.CountedBy["user"] != "ann" || l.Origin != "rule" || !l.Enforced {
		t.Errorf("explain: %+v", l)
	}
	for _, rule := range e.NotApplied {
		if rule.Rule == "" || rule.Why == "" {
			t.Errorf("explain: %+v", e.NotApplied)
		}
	}
}

// TestExplainManyRules checks that the rules closest to the request are listed first among 10,000 rules that do not apply.
func TestExplainManyRules(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range 10_000 {
		fmt.Fprintf(&b, "  - {id: r%d, match: {path: /p%d}, by: [ip], limit: 1/second}\n", i, i)
	}
	b.WriteString("  - {id: near, match: {path: /p7, method: POST}, by: [ip], limit: 1/second}\n")
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	o := start(t, "explain", "--rules", file, "GET", "/p7", "ip=192.0.2.1")
	if !strings.Contains(o.out, "apply\n  near  method is GET, not POST\n  r0") || strings.Count(o.out, "path is") != 9 ||
		!strings.HasSuffix(o.out, "\n  and 9,990 others; --all shows them\n") {
		t.Error(o.out)
	}
	if o = start(t, "explain", "--rules", file, "--all", "GET", "/p7"); strings.Count(o.out, "path is") != 9_999 {
		t.Error("--all does not list all rules")
	}
}

// TestBinary checks the exit codes of the real binary, and that errors go to standard error only.
func TestBinary(t *testing.T) {
	t.Parallel()
	binary := testenv.BuildHeadgate(t)
	for _, c := range []struct {
		code        int
		out, errors string
		args        []string
	}{
		{0, "ok: 7 rules", "", []string{"rules", "validate", "testdata/rules.yaml"}},
		{1, "problems in 1 file", "", []string{"rules", "validate", "testdata/bad.yaml"}},
		{2, "", "no such file", []string{"rules", "validate", "testdata/nowhere.yaml"}},
		{1, "429: denied by partners", "", []string{"explain", "--rules", "testdata/rules.yaml", "/partners/x"}},
		{2, "", "see headgate --help", []string{"nonsense"}},
		{0, "headgate ", "", []string{"version"}},
		{0, "__start_headgate", "", []string{"completion", "bash"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, binary, c.args...)
		var out, problems strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &problems
		_ = cmd.Run()
		cancel()
		code := cmd.ProcessState.ExitCode()
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(problems.String(), c.errors) ||
			(c.out == "") != (out.Len() == 0) || (c.errors == "") != (problems.Len() == 0) {
			t.Errorf("%v: exit %d\nstdout: %s\nstderr: %s", c.args, code, out.String(), problems.String())
		}
	}
}

// TestWriteFails checks that the program fails if its output cannot be written, as on a full disk.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"version"}, {"rules", "validate", "testdata/bad.yaml"}, {"rules", "schema"}} {
		if code, text := exitStatus(run(t.Context(), args, full)); code != 2 || !strings.Contains(text, "no space") {
			t.Errorf("%v: exit %d: %s", args, code, text)
		}
	}
}

// TestYAML checks that YAML output has the keys of JSON output, in the same order, and that conditions stay readable.
func TestYAML(t *testing.T) {
	t.Parallel()
	o := start(t, "rules", "validate", "testdata/rules.yaml", "-o", "yaml")
	var keys []string
	for line := range strings.Lines(o.out) {
		key, _, _ := strings.Cut(line, ":")
		keys = append(keys, key)
	}
	if want := "version ok files rules overrides exemptions mode rules_version problems warnings"; o.code != 0 || !strings.HasPrefix(strings.Join(keys, " "), want) {
		t.Errorf("%v, want %s: %+v", keys, want, o)
	}
	text, err := yamlText(&versionReport{Headgate: "12e45", Commit: "a: b", Go: "true"})
	if err != nil || !strings.Contains(text, "headgate: \"12e45\"\n") || !strings.Contains(text, "commit: 'a: b'\n") || !strings.Contains(text, "go: \"true\"\n") {
		t.Errorf("%v: %s", err, text)
	}
	o = start(t, "explain", "--rules", "testdata/rules.yaml", "GET", "/reports/7", "tenant=acme", "-o", "yaml")
	if !strings.Contains(o.out, "\nlimits:\n") || strings.Contains(o.out, `\u00`) {
		t.Errorf("%+v", o)
	}
}
