// Package shellwords writes command lines that a user can paste into a POSIX shell.
package shellwords

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Command quotes words and joins them to a command line.
func Command(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = Quote(word)
	}
	return strings.Join(quoted, " ")
}

// Quote quotes a word if it needs it. Characters that a terminal would interpret are escaped with printf.
func Quote(word string) string {
	switch {
	case word == "":
		return "''"
	case strings.ContainsFunc(word, unprintable):
		return `"$(printf %b ` + singleQuoted(printfEscape(word)) + `)"`
	case strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("-_=./:,@%+", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}):
		return singleQuoted(word)
	}
	return word
}

func unprintable(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }

func singleQuoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// printfEscape escapes a word for printf %b: bytes of unprintable characters become octal escapes.
func printfEscape(word string) string {
	var b strings.Builder
	for len(word) > 0 {
		r, size := utf8.DecodeRuneInString(word)
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case unprintable(r):
			for i := range size {
				octal := strconv.FormatUint(uint64(word[i]), 8)
				b.WriteString(`\0` + strings.Repeat("0", 3-len(octal)) + octal)
			}
		default:
			b.WriteString(word[:size])
		}
		word = word[size:]
	}
	return b.String()
}
