package yamldoc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// Source is the content of one file.
type Source struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// ReadFile reads at most limit+1 bytes, so that a path to a device does not exhaust memory and the caller can detect a file that
// is too large.
func ReadFile(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // G304: the operator chooses the files
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(file, limit+1))
}

// Check rejects content that is not UTF-8 or has control characters. It returns the source with LF line ends and without a
// byte order mark.
func (s Source) Check() (Source, *Error) {
	s.Data = bytes.TrimPrefix(s.Data, []byte("\ufeff"))
	if bytes.IndexByte(s.Data, '\r') >= 0 {
		s.Data = bytes.ReplaceAll(s.Data, []byte("\r\n"), []byte("\n"))
		s.Data = bytes.ReplaceAll(s.Data, []byte("\r"), []byte("\n"))
	}
	at, problem := -1, ""
	for i := 0; i < len(s.Data); {
		r, size := utf8.DecodeRune(s.Data[i:])
		if r == utf8.RuneError && size == 1 {
			at, problem = i, "the file is not UTF-8 from here on: save it as UTF-8"
			break
		}
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			at, problem = i, fmt.Sprintf("control character %U: remove it", r)
			break
		}
		i += size
	}
	if at < 0 {
		return s, nil
	}
	before := s.Data[:at]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return s, &Error{File: s.Name, Line: line, Column: column, Problem: problem}
}
