package repotest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/testenv"
)

// textFiles returns the text files of the repository by their path, without what tools and tests leave behind.
func textFiles(t *testing.T) map[string]string {
	t.Helper()
	root, files := testenv.Repository(t), map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case entry.IsDir() && (name == ".git" || name == ".bin" || name == "node_modules" || name == "out" || name == "dist" || name == "fuzz"):
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path) //nolint:gosec // a file of this repository
		if err != nil || !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
			return err
		}
		shown, err := filepath.Rel(root, path)
		files[shown] = string(data)
		return err
	})
	testenv.NoError(t, err)
	return files
}
