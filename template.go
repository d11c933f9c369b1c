package headgate

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// maxSegments is the largest number of segments of a path template.
const maxSegments = 32

// template is a compiled path template.
type template struct {
	segments []string // "" is any one segment
	deep     bool     // ends with **
}

// parseTemplate parses a path template such as /users/{id}, /files/* or /api/**.
func parseTemplate(text string) (template, error) {
	var t template
	rest, ok := strings.CutPrefix(text, "/")
	switch {
	case !ok:
		return t, fmt.Errorf("path %s: must begin with a slash: write %s", quote(text), quote("/"+text))
	case strings.ContainsAny(text, "?#"):
		return t, fmt.Errorf("path %s: must not have a query or fragment: paths are matched without it", quote(text))
	case strings.ContainsAny(text, "%\\;\x00"):
		return t, fmt.Errorf("path %s: must not contain %% \\ or ;: write it decoded, as a router sees it", quote(text))
	}
	rest = strings.TrimSuffix(rest, "/")
	if rest == "" {
		return t, nil
	}
	segments := strings.Split(rest, "/")
	if len(segments) > maxSegments {
		return t, fmt.Errorf("path %s: %d segments: must be at most %d", quote(text), len(segments), maxSegments)
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

// parseSegment returns the text of a segment, or "" if it matches any text.
func parseSegment(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("empty segment: never matches: remove the double slash")
	case s == "." || s == "..":
		return "", errors.New("segment " + quote(s) + ": paths are matched with dot segments resolved: remove it")
	case s == "*":
		return "", nil
	case s == "**":
		return "", errors.New("** matches the rest of the path and must be last: write * for one segment, or a condition in when")
	case strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") && !strings.ContainsAny(s[1:len(s)-1], "{}*"):
		return "", nil
	case strings.ContainsAny(s, "{}*"):
		return "", fmt.Errorf("segment %s: must be text, * or {name}: write * and a condition in when", quote(s))
	}
	return s, nil
}

// matches reports whether the template matches a path.
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

// segments is a path split at slashes. It keeps one segment more than a template can have; a path with more matches like that one.
type segments struct {
	at [maxSegments + 1]string
	n  int
}

// split sets the segments of a path.
func (s *segments) split(path string) {
	s.n = 0
	rest := strings.TrimPrefix(path, "/")
	for rest != "" && s.n < len(s.at) {
		s.at[s.n], rest, _ = strings.Cut(rest, "/")
		s.n++
	}
}

// tree is a prefix tree that finds the rules whose templates match a path.
type tree struct {
	literal map[string]*tree
	any     *tree
	exact   []int32 // rules whose template ends at this node
	deep    []int32 // rules whose template ends at this node with **
}

// add files a rule under a template.
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
		n.deep = append(n.deep, rule)
	} else {
		n.exact = append(n.exact, rule)
	}
}

// find appends the rules whose templates match a path from the given depth on.
func (n *tree) find(path *segments, depth int, found []int32) []int32 {
	found = append(found, n.deep...)
	if depth == path.n {
		return append(found, n.exact...)
	}
	if next := n.literal[path.at[depth]]; next != nil {
		found = next.find(path, depth+1, found)
	}
	if n.any != nil {
		found = n.any.find(path, depth+1, found)
	}
	return found
}

// foldCase returns a path in the form in which paths are compared case-insensitively. It folds everything that any server folds:
// regular expressions treat U+017F as an s, and those of Python treat U+0131 as an i.
func foldCase(path string) string {
	for i := range len(path) {
		if path[i] > unicode.MaxASCII {
			return strings.Map(foldRune, path)
		}
	}
	return strings.ToLower(path)
}

// foldRune returns the representative of all characters that differ from r only in case.
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
