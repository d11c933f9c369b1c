package ruledoc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/internal/yamldoc"
)

// maxBytes is the maximum size of a file: about 80,000 rules. Millions of overrides belong in the database.
const maxBytes = 16 << 20

// source is the content of one file.
type source = yamldoc.Source

// listFiles returns the files of the paths, in the order in which they are read.
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
			// The files of a ConfigMap are symbolic links, so the entry's own type is not enough.
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

// noFiles returns the error for paths without rule files.
func noFiles(paths []string) error {
	if len(paths) == 0 {
		return errors.New("rules: no file or directory given: name at least one")
	}
	return fmt.Errorf("rules: no *.yaml, *.yml or *.json file in %s: to run without rules, add a file with "+
		"\"rules: []\"", strings.Join(paths, ", "))
}

// isRuleFile reports whether a file of a directory holds rules. Hidden files (of editors and Kubernetes) and rule tests do
// not.
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

// readFiles reads the files of the paths.
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

// check rejects content that cannot be a document, and returns the content to parse.
func check(s source) (source, *yamldoc.Error) {
	if len(s.Data) > maxBytes {
		problem := fmt.Sprintf("the file is larger than %d MB: split it, or store large numbers of overrides and exemptions "+
			"in the database", maxBytes>>20)
		s.Data = nil
		return s, &yamldoc.Error{File: s.Name, Line: 1, Column: 1, Problem: problem}
	}
	return s.Check()
}
