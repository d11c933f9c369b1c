package main

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/server/adminclient"
)

// suggestCommand returns a headgate command line that a user can paste into a shell. It quotes the words and repeats the flags
// that select the server. It contains the path of the token file, never a token.
func suggestCommand(c *adminclient.Client, words ...string) string {
	all := []string{"headgate", words[0], "--server", c.Server}
	for _, flag := range [][2]string{
		{"--token-file", c.TokenFile}, {"--ca-file", c.CAFile}, {"--cert-file", c.CertFile}, {"--key-file", c.KeyFile},
	} {
		if flag[1] != "" {
			all = append(all, flag[0], flag[1])
		}
	}
	all = append(all, words[1:]...)
	for i, word := range all {
		all[i] = shellQuote(word)
	}
	return strings.Join(all, " ")
}

// shellQuote quotes a word for a POSIX shell. Characters that a terminal would interpret are escaped with printf.
func shellQuote(word string) string {
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
