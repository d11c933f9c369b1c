package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// NoError ends the test if err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WriteFiles writes files, given as contents by name, into a directory.
func WriteFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}
