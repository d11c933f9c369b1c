package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/yamldoc"
)

// FuzzLoad checks that every file yields either a config or errors with positions in the file.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := load(file, lookup)
		if err == nil {
			c.Settings()
			return
		}
		var all yamldoc.Errors
		if !errors.As(err, &all) || len(all) == 0 {
			t.Fatalf("%T: %v", err, err)
		}
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 1
		for _, e := range all {
			if e.Problem == "" || e.Line < 1 || e.Column < 1 || e.Line > lines {
				t.Errorf("%d:%d is not in the file: %s", e.Line, e.Column, e.Problem)
			}
		}
	})
}
