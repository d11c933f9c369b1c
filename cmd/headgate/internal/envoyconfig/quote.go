package envoyconfig

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// plain is what YAML takes for text without quotes, also between brackets.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// words are what YAML, old or new, takes for something else than text.
var words = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// quoted is text in YAML.
func quoted(s string) string {
	if plain.MatchString(s) && !slices.Contains(words, strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(s)
}

func quotedList(all []string) string {
	items := make([]string, len(all))
	for i, s := range all {
		items[i] = quoted(s)
	}
	return "[" + strings.Join(items, ", ") + "]"
}
