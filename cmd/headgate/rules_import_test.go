package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportOut imports every documented example into files. The rules must be valid and pass the generated tests.
func TestImportOut(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Glob("internal/envoyconfig/testdata/example*.txt")
	if err != nil || len(examples) < 15 {
		t.Fatal(examples, err)
	}
	for _, newer := range []string{"metadata", "stars", "loose"} {
		examples = append(examples, "internal/envoyconfig/testdata/newer/"+newer+".txt")
	}
	for _, example := range examples {
		name := strings.TrimSuffix(filepath.Base(example), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(example)
			if err != nil {
				t.Fatal(err)
			}
			config, _, _ := strings.Cut(string(data), "-----\n")
			file, out := filepath.Join(t.TempDir(), name+".yml"), filepath.Join(t.TempDir(), "new", "rules")
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			rules, tests := filepath.Join(out, name+".yaml"), filepath.Join(out, name+"_test.yaml")
			o := start(t, "rules", "import", "--from", "envoy-ratelimit", "--dir", out, file)
			if o.out != rules+"\n"+tests+"\n" || (o.code == 0) != (o.errors == "") || o.code > 1 {
				t.Fatalf("%+v", o)
			}
			printed := start(t, "rules", "import", "--from", "envoy-ratelimit", file)
			if written, err := os.ReadFile(rules); err != nil || string(written) != printed.out || printed.code != o.code {
				t.Errorf("written:\n%s\nprinted:\n%+v\n%v", written, printed, err)
			}
			if o := start(t, "rules", "validate", out); o.code != 0 {
				t.Errorf("%+v", o)
			}
			if o := start(t, "rules", "test", tests); o.code != 0 {
				t.Errorf("%+v", o)
			}
		})
	}
}

// TestImportNeverOverwrites checks that no file is overwritten, not even an imported config by its own rules.
func TestImportNeverOverwrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := []string{"a.yaml", "b.yml", filepath.Join("sub", "a.yml")}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		names[i] = filepath.Join(dir, name)
		config := "domain: " + string(rune('a'+i)) + "\ndescriptors: [{key: k}]\n"
		if err := os.WriteFile(names[i], []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		problem string
		args    []string
	}{
		{"a.yaml already exists", []string{dir, names[1], names[0]}},
		{"two input files would both be written to", []string{filepath.Join(dir, "new"), names[1], names[0], names[2]}},
	} {
		o := start(t, append([]string{"rules", "import", "--from", "envoy-ratelimit", "--dir"}, test.args...)...)
		if o.code != 2 || !strings.Contains(o.errors, test.problem) || o.out != "" {
			t.Errorf("%v: %+v", test.args, o)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 3 {
		t.Errorf("files were written: %v %v", left, err)
	}
}
