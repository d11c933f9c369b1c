package headgate

import (
	"strings"
	"unicode"
)

// foldCase returns a path in the form in which paths are compared that differ in case only. It folds as much as any server does:
// U+017F is an s to regular expressions, U+0131 is an i to those of Python.
func foldCase(path string) string {
	for i := range len(path) {
		if path[i] > unicode.MaxASCII {
			return strings.Map(foldRune, path)
		}
	}
	return strings.ToLower(path)
}

func foldRune(r rune) rune {
	if r == 'ı' || r == 'İ' {
		return 'i'
	}
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	return unicode.ToLower(least)
}
