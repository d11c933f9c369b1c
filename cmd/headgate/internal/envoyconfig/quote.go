package envoyconfig

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// plain matches text that needs no quotes in YAML, inside brackets as well.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// reserved are the words that YAML 1.1 or 1.2 does not read as text.
var reserved = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// quoteYAML returns text as a YAML scalar.
func quoteYAML(s string) string {
	if plain.MatchString(s) && !slices.Contains(reserved, strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(s)
}

func quoteYAMLList(all []string) string {
	items := make([]string, len(all))
	for i, s := range all {
		items[i] = quoteYAML(s)
	}
	return "[" + strings.Join(items, ", ") + "]"
}
