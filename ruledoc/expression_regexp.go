package ruledoc

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode"
)

// maxRegexpVisits bounds the time to compute the width of a regular expression.
const maxRegexpVisits = 200_000

// regexpWidth returns the maximum number of instructions that a regular expression executes for one character of any
// text. Go's engines execute each instruction at most once per character, and an expression like ^/v[0-9]+/ has only one or
// two live instructions at a time, however long the program is: a bound on the program's length would reject harmless
// expressions along with expensive ones. The width is the size of the largest set of live instructions, computed by visiting
// all sets that are reachable with some text. If there are too many sets to visit, it is the length of the program.
func regexpWidth(s string) int {
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return 1
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return 1
	}
	w := &widthSearch{program: program, runes: representatives(program), seen: map[string]bool{}}
	w.anchored = program.StartCond()&syntax.EmptyBeginText != 0
	w.visit(w.closure([]uint32{uint32(program.Start)}, true))
	for len(w.queue) > 0 {
		live := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		for _, r := range w.runes {
			if w.visits > maxRegexpVisits {
				return len(program.Inst)
			}
			w.visit(w.closure(w.after(live, r), false))
		}
	}
	return w.widest
}

// widthSearch is the state of a search for the largest set of live instructions.
type widthSearch struct {
	program  *syntax.Prog
	runes    []rune // one of each class that the program distinguishes
	anchored bool   // the expression only matches at the beginning of the text
	seen     map[string]bool
	queue    [][]uint32
	widest   int
	visits   int
}

// visit records a set of instructions, and queues it if it is new.
func (w *widthSearch) visit(live []uint32) {
	w.widest = max(w.widest, len(live))
	key := make([]byte, 0, 4*len(live))
	for _, pc := range live {
		key = binary.LittleEndian.AppendUint32(key, pc)
	}
	if !w.seen[string(key)] {
		w.seen[string(key)] = true
		w.queue = append(w.queue, live)
	}
}

// after returns the instructions that follow when a character is read.
func (w *widthSearch) after(live []uint32, r rune) []uint32 {
	var next []uint32
	for _, pc := range live {
		w.visits++
		switch i := &w.program.Inst[pc]; i.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if i.MatchRune(r) {
				next = append(next, i.Out)
			}
		default: // reads no character
		}
	}
	if !w.anchored {
		next = append(next, uint32(w.program.Start))
	}
	return next
}

// closure returns the sorted set of instructions that are executed at one position of the text, starting from the given ones.
// It evaluates only the assertion for the beginning of the text; the other assertions may hold anywhere.
func (w *widthSearch) closure(from []uint32, beginning bool) []uint32 {
	reached := make(map[uint32]bool, len(from))
	for len(from) > 0 {
		pc := from[len(from)-1]
		from = from[:len(from)-1]
		if reached[pc] {
			continue
		}
		reached[pc] = true
		w.visits++
		switch i := &w.program.Inst[pc]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			from = append(from, i.Out, i.Arg)
		case syntax.InstEmptyWidth:
			if beginning || syntax.EmptyOp(i.Arg)&syntax.EmptyBeginText == 0 {
				from = append(from, i.Out)
			}
		case syntax.InstCapture, syntax.InstNop:
			from = append(from, i.Out)
		default: // reads a character, or ends
		}
	}
	all := make([]uint32, 0, len(reached))
	for pc := range reached {
		all = append(all, pc)
	}
	slices.Sort(all)
	return all
}

// representatives returns one rune of each class that a program distinguishes: the first rune of every interval within which
// the program treats all runes alike.
func representatives(program *syntax.Prog) []rune {
	first := []rune{0, '\n', '\n' + 1}
	for i := range program.Inst {
		inst := &program.Inst[i]
		if inst.Op != syntax.InstRune && inst.Op != syntax.InstRune1 {
			continue
		}
		if len(inst.Rune) == 1 {
			r := inst.Rune[0]
			first = append(first, r, r+1)
			if syntax.Flags(inst.Arg)&syntax.FoldCase != 0 {
				for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
					first = append(first, f, f+1)
				}
			}
			continue
		}
		for j := 0; j+1 < len(inst.Rune); j += 2 {
			first = append(first, inst.Rune[j], inst.Rune[j+1]+1)
		}
	}
	slices.Sort(first)
	return slices.Compact(first)
}
