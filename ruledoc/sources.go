package ruledoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxBytes is how large a file may be: some 80,000 rules. Overrides by the million belong into the database.
const maxBytes = 16 << 20

// source is the text of one file.
type source struct {
	name string
	data []byte
}

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
		data, err := readFile(name)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		sources[i] = source{name, data}
	}
	return sources, nil
}

// readFile stops soon after maxBytes, so that a path that leads to a device does not fill the memory.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // G304: whoever runs the program says which files hold the rules
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(file, maxBytes+1))
}

// check refuses what cannot be a document at all, and returns the text with plain line ends and no byte order mark.
func (s source) check() (source, *Error) {
	if len(s.data) > maxBytes {
		problem := fmt.Sprintf("the file is larger than %d MB: split it; overrides and exemptions by the thousand belong "+
			"into the database", maxBytes>>20)
		s.data = nil
		return s, &Error{File: s.name, Line: 1, Column: 1, Problem: problem}
	}
	s.data = bytes.TrimPrefix(s.data, []byte("\ufeff"))
	if bytes.IndexByte(s.data, '\r') >= 0 {
		s.data = bytes.ReplaceAll(s.data, []byte("\r\n"), []byte("\n"))
		s.data = bytes.ReplaceAll(s.data, []byte("\r"), []byte("\n"))
	}
	at, problem := -1, ""
	for i := 0; i < len(s.data); {
		r, size := utf8.DecodeRune(s.data[i:])
		if r == utf8.RuneError && size == 1 {
			at, problem = i, "the file is not UTF-8 from here on: save it as UTF-8"
			break
		}
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			at, problem = i, fmt.Sprintf("there is a control character (%U) here: remove it", r)
			break
		}
		i += size
	}
	if at < 0 {
		return s, nil
	}
	before := s.data[:at]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return s, &Error{File: s.name, Line: line, Column: column, Problem: problem}
}
