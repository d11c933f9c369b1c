package main

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/server/adminclient"
)

// command is one for people to run, as it is printed: its words are quoted for a shell, and it has the flags by which the
// same server is asked in the same way. A token is never among them, only where it is.
func command(c *adminclient.Client, words ...string) string {
	all := []string{"headgate", words[0], "--server", c.Server}
	if c.TokenFile != "" {
		all = append(all, "--token-file", c.TokenFile)
	}
	if c.CAFile != "" {
		all = append(all, "--ca-file", c.CAFile)
	}
	all = append(all, words[1:]...)
	for i, word := range all {
		all[i] = quoted(word)
	}
	return strings.Join(all, " ")
}

// quoted is a word as a POSIX shell takes it. What a terminal would act on is escaped, and is the same to the shell.
func quoted(word string) string {
	switch {
	case word == "":
		return "''"
	case strings.ContainsFunc(word, unprintable):
		return `"$(printf %b ` + singleQuoted(escaped(word)) + `)"`
	case strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("-_=./:,@%+", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}):
		return singleQuoted(word)
	}
	return word
}

func unprintable(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }

func singleQuoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// escaped is a word for %b of printf: a byte that is not to be printed is its number, in octal.
func escaped(word string) string {
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
