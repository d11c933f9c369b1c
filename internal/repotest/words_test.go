package repotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/headgate/headgate/internal/testenv"
)

// TestWords holds identifiers, comments, messages and documentation to the vocabulary of the field: see testdata/words.txt.
func TestWords(t *testing.T) {
	t.Parallel()
	words := readWords(t, "testdata/words.txt")
	for path, data := range textFiles(t) {
		switch name := filepath.Base(path); {
		case name == "go.sum", name == "LICENSE", name == "words.txt", name == "words_test.go":
		case strings.HasSuffix(name, ".pb.go"), strings.HasSuffix(name, ".svg"):
		default:
			for _, finding := range words.check(path, data) {
				t.Error(finding)
			}
		}
	}
}

// TestWordList shows what the list finds, and where it does not look.
func TestWordList(t *testing.T) {
	t.Parallel()
	words := readWords(t, "testdata/words.txt")
	for _, test := range []struct{ path, data, want string }{
		{"a.go", "package a\n\n// Whoever asks.\nvar x = 1\n", `a.go:3: "Whoever"`},
		{"a.go", "package a\n\nvar isAway = 1\n", `a.go:3: "isAway"`},
		{"a.go", "package a\n\nfunc f() { println(\"nobody\") }\n", `a.go:3: "nobody"`},
		{"a.go", "package a\n\nimport \"x\"\n\nvar y = x.Away()\n", ""}, // a name of another package
		{"a.md", "A client is\nno server.\n", `a.md:1: "is\nno"`},
		{"a.md", "There is no server. `Away` was renamed.\n", `a.md:1: "Away"`},
		{"CHANGELOG.md", "`Away` was renamed.\n", ""},
		{"a.go", "package a\n\n// f is a number.\nfunc f() {}\n", `a.go:4: "f is"`},
		{"away.md", "", `away.md:1: "away.md"`},
		{"a.go", "package a\n\n// dial: connection refused\nvar x = 1\n", ""},
	} {
		got := strings.Join(words.check(test.path, test.data), "\n")
		if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s %q: %s, want %s", test.path, test.data, got, test.want)
		}
	}
}

// wordList is what the project does not write: in names, and in text.
type wordList struct {
	names, text []bannedWord
	allowed     *regexp.Regexp
}

type bannedWord struct {
	begin   string // in lower case: a text without it is not searched for the pattern
	pattern *regexp.Regexp
	instead string
}

func readWords(t testing.TB, file string) wordList {
	t.Helper()
	data, err := os.ReadFile(file)
	testenv.NoError(t, err)
	var list wordList
	var allowed []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if phrase, ok := strings.CutPrefix(line, "allow "); ok {
			allowed = append(allowed, pattern(phrase))
			continue
		}
		fields := strings.Split(line, "|")
		if len(fields) != 3 {
			t.Fatalf("%s: %q has %d fields, want 3", file, line, len(fields))
		}
		begin := strings.TrimSuffix(strings.Fields(fields[0])[0], "*")
		banned := bannedWord{begin, regexp.MustCompile(`(?i)\b` + pattern(fields[0]) + `\b`), strings.TrimSpace(fields[2])}
		switch where := strings.TrimSpace(fields[1]); where {
		case "names":
			list.names = append(list.names, banned)
		case "text":
			list.text = append(list.text, banned)
		default:
			list.names = append(list.names, banned)
			list.text = append(list.text, banned)
		}
	}
	list.allowed = regexp.MustCompile(`(?i)` + strings.Join(allowed, "|"))
	return list
}

// pattern returns the regular expression for a word or phrase of the list, which may span the end of a line.
func pattern(phrase string) string {
	phrase = strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(phrase)), `\*`, `\w*`)
	return strings.ReplaceAll(phrase, " ", `[\s/#]+`)
}

// notVerbs are words behind a function's name that do not say what it does.
var notVerbs = map[string]bool{"is": true, "are": true, "was": true, "says": true, "tells": true}

// codeSpan is a name in Markdown.
var codeSpan = regexp.MustCompile("`[^`]*`")

// check returns the findings in a file, each with its line and what to write.
func (w *wordList) check(path, data string) []string {
	var findings []string
	report := func(line int, list []bannedWord, text, shown string) {
		lower, cleared := strings.ToLower(text), false
		for _, banned := range list {
			if !strings.Contains(lower, banned.begin) {
				continue
			}
			if !cleared {
				text, cleared = w.allowed.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("-", len(s)) }), true
			}
			for _, at := range banned.pattern.FindAllStringIndex(text, -1) {
				word := shown
				if word == "" {
					word = text[at[0]:at[1]]
				}
				findings = append(findings,
					fmt.Sprintf("%s:%d: %q: write %s", path, line+strings.Count(text[:at[0]], "\n"), word, banned.instead))
			}
		}
	}
	base := filepath.Base(path)
	report(1, w.names, splitName(strings.TrimSuffix(base, filepath.Ext(base))), base)
	if filepath.Ext(path) != ".go" {
		if base == "CHANGELOG.md" { // which has the names of old
			data = codeSpan.ReplaceAllString(data, "``")
		}
		report(1, w.text, data, "")
		return findings
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil // a file that is not meant to compile
	}
	line := func(pos token.Pos) int { return files.Position(pos).Line }
	for _, group := range file.Comments {
		report(line(group.Pos()), w.text, data[files.Position(group.Pos()).Offset:files.Position(group.End()).Offset], "")
	}
	name := func(idents ...*ast.Ident) {
		for _, ident := range idents {
			report(line(ident.Pos()), w.names, splitName(ident.Name), ident.Name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				report(line(n.Pos()), w.text, n.Value, "")
			}
		case *ast.FuncDecl:
			name(n.Name)
			if words := strings.Fields(n.Doc.Text()); len(words) > 1 && notVerbs[words[1]] {
				findings = append(findings, fmt.Sprintf("%s:%d: %q: write what the function does: returns, reports whether, writes",
					path, line(n.Pos()), strings.Join(words[:2], " ")))
			}
		case *ast.TypeSpec:
			name(n.Name)
		case *ast.ValueSpec:
			name(n.Names...)
		case *ast.Field:
			name(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, x := range n.Lhs {
					if ident, ok := x.(*ast.Ident); ok {
						name(ident)
					}
				}
			}
		case *ast.RangeStmt:
			for _, x := range []ast.Expr{n.Key, n.Value} {
				if ident, ok := x.(*ast.Ident); ok && n.Tok == token.DEFINE {
					name(ident)
				}
			}
		}
		return true
	})
	return findings
}

// splitName puts spaces between the words of an identifier or a file name.
func splitName(name string) string {
	var b strings.Builder
	var last rune
	for _, r := range name {
		switch {
		case r == '_' || r == '-' || r == '.':
			r = ' '
		case unicode.IsUpper(r) && unicode.IsLower(last):
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		last = r
	}
	return b.String()
}
