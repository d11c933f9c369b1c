package ruledoc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/internal/yamldoc"
)

// maxBytes is how large a file may be: some 80,000 rules. Overrides by the million belong into the database.
const maxBytes = 16 << 20

// source is the text of one file.
type source = yamldoc.Source

// listFiles names the files that paths stand for, in the order in which they are read.
func listFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		for _, entry := range entries {
			file := filepath.Join(path, entry.Name())
			if !isRuleFile(entry.Name()) {
				continue
			}
			// A ConfigMap's files are links, so the entry itself does not tell.
			if info, err := os.Stat(file); err == nil && info.IsDir() {
				continue
			}
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil, noFiles(paths)
	}
	return files, nil
}

func noFiles(paths []string) error {
	if len(paths) == 0 {
		return errors.New("rules: no file or directory is named")
	}
	return fmt.Errorf("rules: there is no *.yaml, *.yml or *.json in %s: to run without rules, put a file with "+
		"\"rules: []\" there", strings.Join(paths, ", "))
}

// isRuleFile says whether a file of a directory holds rules: not hidden ones, in which editors and Kubernetes keep
// theirs, nor tests of rules.
func isRuleFile(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	ext := filepath.Ext(name)
	switch ext {
	case ".yaml", ".yml", ".json":
		return !strings.HasSuffix(strings.TrimSuffix(name, ext), "_test")
	}
	return false
}

// readFiles reads the files that paths stand for.
func readFiles(paths []string) ([]source, error) {
	names, err := listFiles(paths)
	if err != nil {
		return nil, err
	}
	sources := make([]source, len(names))
	for i, name := range names {
		data, err := yamldoc.ReadFile(name, maxBytes)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		sources[i] = source{Name: name, Data: data}
	}
	return sources, nil
}

// check denies what cannot be a document at all, and returns the text as it can be parsed.
func check(s source) (source, *yamldoc.Error) {
	if len(s.Data) > maxBytes {
		problem := fmt.Sprintf("the file is larger than %d MB: split it; overrides and exemptions by the thousand belong "+
			"into the database", maxBytes>>20)
		s.Data = nil
		return s, &yamldoc.Error{File: s.Name, Line: 1, Column: 1, Problem: problem}
	}
	return s.Check()
}
