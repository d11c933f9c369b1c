package headgate

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// maxSegments is how many segments a path template may have.
const maxSegments = 32

// template is a compiled path template.
type template struct {
	segments []string // "" is any one segment
	deep     bool     // ends with **
}

// parseTemplate reads /users/{id}, /files/*, /api/**.
func parseTemplate(text string) (template, error) {
	var t template
	rest, ok := strings.CutPrefix(text, "/")
	switch {
	case !ok:
		return t, fmt.Errorf("path %s must begin with a slash: write %s", quote(text), quote("/"+text))
	case strings.ContainsAny(text, "?#"):
		return t, fmt.Errorf("path %s has a query: paths are matched without it", quote(text))
	case strings.ContainsAny(text, "%\\;\x00"):
		return t, fmt.Errorf("path %s has one of %% \\ ; in it: write it as a router sees it, decoded", quote(text))
	}
	rest = strings.TrimSuffix(rest, "/")
	if rest == "" {
		return t, nil
	}
	segments := strings.Split(rest, "/")
	if len(segments) > maxSegments {
		return t, fmt.Errorf("path %s has more than %d segments", quote(text), maxSegments)
	}
	for i, segment := range segments {
		if segment == "**" && i == len(segments)-1 {
			t.deep = true
			return t, nil
		}
		literal, err := parseSegment(segment)
		if err != nil {
			return t, fmt.Errorf("path %s: %w", quote(text), err)
		}
		t.segments = append(t.segments, literal)
	}
	return t, nil
}

// parseSegment returns the text of a segment, or "" if it may be anything.
func parseSegment(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("an empty segment never matches: remove the doubled slash")
	case s == "." || s == "..":
		return "", errors.New("paths are matched with their dots resolved: write it without")
	case s == "*":
		return "", nil
	case s == "**":
		return "", errors.New("** stands for the rest of the path and comes last; write * for one segment, or a condition in when")
	case strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") && !strings.ContainsAny(s[1:len(s)-1], "{}*"):
		return "", nil
	case strings.ContainsAny(s, "{}*"):
		return "", fmt.Errorf("a segment is text, * or {name}, and %s is a mixture: write * here and the rest as a condition in when", quote(s))
	}
	return s, nil
}

func (t *template) matches(path *segments) bool {
	if len(t.segments) > path.n || !t.deep && len(t.segments) != path.n {
		return false
	}
	for i, s := range t.segments {
		if s != "" && s != path.at[i] {
			return false
		}
	}
	return true
}

// segments is a path taken apart. More segments than a template can have are one too many, whatever they are.
type segments struct {
	at [maxSegments + 1]string
	n  int
}

func (s *segments) split(path string) {
	s.n = 0
	rest := strings.TrimPrefix(path, "/")
	for rest != "" && s.n < len(s.at) {
		s.at[s.n], rest, _ = strings.Cut(rest, "/")
		s.n++
	}
}

// tree finds the rules whose templates match a path.
type tree struct {
	literal map[string]*tree
	any     *tree
	here    []int32 // rules of templates that end here
	below   []int32 // rules of templates that end here with **
}

func (n *tree) add(t template, rule int32) {
	for _, s := range t.segments {
		if s == "" {
			if n.any == nil {
				n.any = &tree{}
			}
			n = n.any
			continue
		}
		if n.literal == nil {
			n.literal = map[string]*tree{}
		}
		if n.literal[s] == nil {
			n.literal[s] = &tree{}
		}
		n = n.literal[s]
	}
	if t.deep {
		n.below = append(n.below, rule)
	} else {
		n.here = append(n.here, rule)
	}
}

func (n *tree) find(path *segments, depth int, found []int32) []int32 {
	found = append(found, n.below...)
	if depth == path.n {
		return append(found, n.here...)
	}
	if next := n.literal[path.at[depth]]; next != nil {
		found = next.find(path, depth+1, found)
	}
	if n.any != nil {
		found = n.any.find(path, depth+1, found)
	}
	return found
}

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
