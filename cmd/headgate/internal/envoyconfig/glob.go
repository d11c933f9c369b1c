package envoyconfig

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// wild reports whether the value contains a wildcard.
func (x *descriptor) wild() bool { return strings.Contains(x.value, "*") }

// glob reports whether the value has a wildcard before its end. Releases before March 2026 match that one literally.
func (x *descriptor) glob() bool { return strings.Contains(strings.TrimSuffix(x.value, "*"), "*") }

// prefix returns the text before the first wildcard.
func (x *descriptor) prefix() string {
	prefix, _, _ := strings.Cut(x.value, "*")
	return prefix
}

// suffix returns the text after the last wildcard.
func (x *descriptor) suffix() string { return x.value[strings.LastIndex(x.value, "*")+1:] }

// matches reports whether the value of x matches a value. Each wildcard matches any text, including none.
func (x *descriptor) matches(value string) bool {
	parts := strings.Split(x.value, "*")
	rest, ok := strings.CutPrefix(value, parts[0])
	if len(parts) == 1 {
		return ok && rest == ""
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		var found bool
		_, rest, found = strings.Cut(rest, part)
		ok = ok && found
	}
	return ok && strings.HasSuffix(rest, parts[last])
}

// condition returns the condition that the values of a glob meet. It uses a regular expression only if necessary, because that is
// much more expensive.
func (x *descriptor) condition(attribute string) string {
	name := fmt.Sprintf("descriptor[%q]", attribute)
	parts := strings.Split(x.value, "*")
	if len(parts) > 2 {
		for i, part := range parts {
			parts[i] = regexp.QuoteMeta(part)
		}
		return fmt.Sprintf("%s.matches(%q)", name, "^"+strings.Join(parts, "(?s:.*)")+"$")
	}
	first, last := parts[0], parts[1]
	all := fmt.Sprintf("%s.endsWith(%q)", name, last)
	if first != "" {
		all = fmt.Sprintf("%s.startsWith(%q) && %s", name, first, all)
	}
	for i := range first {
		if strings.HasPrefix(last, first[i:]) || strings.HasPrefix(first[i:], last) { // prefix and suffix could overlap
			return fmt.Sprintf("%s && size(%s) >= %d", all, name, utf8.RuneCountInString(first+last))
		}
	}
	return all
}

// overlap reports whether a value may match both descriptors. It may return true if none does.
func overlap(x, other *descriptor) bool {
	a, b := x.prefix(), other.prefix()
	if !strings.HasPrefix(a, b) && !strings.HasPrefix(b, a) {
		return false
	}
	a, b = x.suffix(), other.suffix()
	return strings.HasSuffix(a, b) || strings.HasSuffix(b, a)
}
