package yamldoc

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Locate returns the position in the source of the character at an offset of a text. Where quotes, escapes or folded
// lines make the position ambiguous, it returns the position of the text itself.
func (s Source) Locate(n *Node, offset int) (line, column int) {
	if n.Kind != Text {
		return n.Line, n.Column
	}
	p := cursor{data: after(s.Data, n.Line, n.Column), line: n.Line, column: n.Column}
	switch n.style {
	case singleQuoted, doubleQuoted:
		p.skip(1)
	case block:
		for len(p.data) > 0 && p.line == n.Line {
			p.skip(1)
		}
	}
	want := []rune(n.Text)
	for i := 0; i < len(want) && len(p.data) > 0; {
		r, width := p.read(n.style)
		switch {
		case r == want[i]:
			if i == offset {
				return p.line, p.column
			}
			i++
			p.skip(width)
		case strings.ContainsRune(" \t\n", r):
			p.skip(width)
		case want[i] == ' ' || want[i] == '\n':
			if i == offset {
				return p.line, p.column
			}
			i++
		default:
			return n.Line, n.Column
		}
	}
	if offset >= len(want) && len(want) > 0 {
		return p.line, p.column
	}
	return n.Line, n.Column
}

// after returns the data from a position on.
func after(data []byte, line, column int) []byte {
	for range line - 1 {
		data = data[bytes.IndexByte(data, '\n')+1:]
	}
	for range column - 1 {
		_, size := utf8.DecodeRune(data)
		data = data[size:]
	}
	return data
}

// cursor is a position that moves through a file.
type cursor struct {
	data         []byte
	line, column int
}

func (p *cursor) skip(characters int) {
	for range characters {
		r, size := utf8.DecodeRune(p.data)
		p.data = p.data[size:]
		p.column++
		if r == '\n' {
			p.line, p.column = p.line+1, 1
		}
	}
}

// read returns the next character of the decoded text, and how many characters of the source encode it.
func (p *cursor) read(s style) (r rune, width int) {
	r, size := utf8.DecodeRune(p.data)
	rest := p.data[size:]
	switch {
	case s == singleQuoted && r == '\'' && bytes.HasPrefix(rest, []byte("'")):
		return r, 2
	case s != doubleQuoted || r != '\\' || len(rest) == 0:
		return r, 1
	}
	escaped, _ := utf8.DecodeRune(rest)
	if known := strings.IndexRune("ntr0abvfe", escaped); known >= 0 {
		return rune("\n\t\r\x00\a\b\v\f\x1b"[known]), 2
	}
	if digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[escaped]; digits > 0 && len(rest) > digits {
		var code rune
		for _, h := range rest[1 : 1+digits] {
			code = code<<4 | rune(strings.IndexByte("0123456789abcdef", h|0x20)&0xf)
		}
		return code, 2 + digits
	}
	return escaped, 2
}
