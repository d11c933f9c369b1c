package yamldoc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// Source is the text of one file.
type Source struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// ReadFile stops soon after most bytes, so that a path that leads to a device does not fill the memory.
func ReadFile(name string, most int64) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // G304: whoever runs the program says which files it reads
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(file, most+1))
}

// Check denies what cannot be a document at all, and returns the text with plain line ends and no byte order mark.
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
			at, problem = i, fmt.Sprintf("there is a control character (%U) here: remove it", r)
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
