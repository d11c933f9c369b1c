package ruledoc

import (
	"fmt"
	"math/rand/v2"
	"regexp/syntax"
	"strings"
	"testing"
)

// realistic are typical regular expressions for paths and headers.
var realistic = []string{
	`^/v[0-9]+/`, `[0-9]$`, `^/api/v[0-9]+/(users|orders|items)/[0-9]+$`, `\.(jpg|png|gif|css|js)$`,
	`^/users/[^/]+/orders/[0-9a-f-]{36}$`, `/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}/`, `^(?:[^/]*/){3}admin`,
	`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`, `^/a/.*/b/.*/c$`, `^[^@]+@[^@]+\.[^@]+$`, `\bfoo\b`, `\pL+`,
	`(?i)bot|crawler|spider`, `(?i)(bot|crawler|spider|curl|wget|python-requests|go-http-client)`,
	`^Mozilla/5\.0 \(.*\) AppleWebKit`,
}

// harmful are regular expressions that take a millisecond or more for an attribute of the maximum length.
var harmful = []string{
	`(?:a?){40}b$`, `(a?){40}b$`, `([a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*)*!`, `(a|b|ab|ba|aab|bba|abab){3}$`,
	`[ab]*a[ab]{40}$`, `x{900}`, `([a-z]{1,50}/){1,20}x`, `(x+x+)+y(x+x+)+y(x+x+)+y(x+x+)+y`, `(.?){30}.{30}$`,
	`(?i)(?:[a-z]?[a-z0-9]?){12}#`, `^(.*,){11}P`, `^(?:a?){20}(?:b?){20}c`,
}

func TestConditionCost(t *testing.T) {
	t.Parallel()
	for _, s := range realistic {
		c, problems := compileCondition(fmt.Sprintf("path.matches(%q)", s))
		if len(problems) > 0 {
			t.Errorf("%s: %v", s, problems)
		}
		t.Logf("%7d steps: %s", c.Steps, s)
	}
	for _, s := range harmful {
		for _, attribute := range []string{"path", "user_agent", `header["x-app"]`, "(path + host)", "host.lowerAscii()"} {
			_, problems := compileCondition(fmt.Sprintf("%s.matches(%q)", attribute, s))
			if len(problems) != 1 || !strings.Contains(problems[0].text, "must be at most 150000: use startsWith") {
				t.Errorf("%s: %s: %v", attribute, s, problems)
			}
		}
	}
	// Repeating an expression multiplies its cost.
	once, _ := compileCondition(`path.matches("^/v[0-9]+/")`)
	twice, _ := compileCondition(`path.matches("^/v[0-9]+/") || path.matches("^/v[0-9]+/")`)
	if once.Steps == 0 || twice.Steps != 2*once.Steps {
		t.Errorf("%d steps once, %d twice", once.Steps, twice.Steps)
	}
}

// TestRegexpWidthIsABound checks with random texts that a program executes at most width instructions per character.
func TestRegexpWidthIsABound(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range append(realistic, harmful...) {
		tree, err := syntax.Parse(s, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(tree.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		width := regexpWidth(s)
		letters := []rune("/aab0.-,xbé\n" + s)
		widest := 0
		for range 50 {
			text := make([]rune, 60)
			for i := range text {
				text[i] = letters[random.IntN(1+random.IntN(len(letters)))]
			}
			widest = max(widest, liveInstructions(program, text))
		}
		if widest > width {
			t.Errorf("%s: %d instructions for one character, but the width is %d", s, widest, width)
		}
		if width > len(program.Inst) {
			t.Errorf("%s: the width is %d, but the program has %d instructions", s, width, len(program.Inst))
		}
	}
}

// liveInstructions returns the maximum number of instructions that a program executes at one position of a text.
func liveInstructions(program *syntax.Prog, text []rune) (widest int) {
	var follow func(pc uint32, at int)
	live := map[uint32]bool{}
	follow = func(pc uint32, at int) {
		if live[pc] {
			return
		}
		live[pc] = true
		before, after := rune(-1), rune(-1)
		if at > 0 {
			before = text[at-1]
		}
		if at < len(text) {
			after = text[at]
		}
		switch i := &program.Inst[pc]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			follow(i.Out, at)
			follow(i.Arg, at)
		case syntax.InstCapture, syntax.InstNop:
			follow(i.Out, at)
		case syntax.InstEmptyWidth:
			if i.MatchEmptyWidth(before, after) {
				follow(i.Out, at)
			}
		default:
		}
	}
	var next []uint32
	for at := range len(text) + 1 {
		clear(live)
		if at == 0 || program.StartCond()&syntax.EmptyBeginText == 0 {
			follow(uint32(program.Start), at)
		}
		for _, pc := range next {
			follow(pc, at)
		}
		widest, next = max(widest, len(live)), nil
		for pc := range live {
			i := &program.Inst[pc]
			if takes := i.Op == syntax.InstRune || i.Op == syntax.InstRune1 || i.Op == syntax.InstRuneAny || i.Op == syntax.InstRuneAnyNotNL; takes &&
				at < len(text) && i.MatchRune(text[at]) {
				next = append(next, i.Out)
			}
		}
	}
	return widest
}
