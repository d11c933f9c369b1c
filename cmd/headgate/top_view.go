package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/wording"
)

const (
	topEvery = 2 * time.Second
	// sizeEvery is how soon a change of the window's size is seen.
	sizeEvery = 200 * time.Millisecond

	// The view has a page of its own, without a cursor, whose lines are cut instead of wrapped; what was there before comes back.
	openPage  = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	closePage = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	toTop     = "\x1b[H"
	clearLine = "\x1b[K\r\n"
	clearRest = "\x1b[J"
)

// screen is a terminal with somebody before it.
type screen struct {
	in, out *os.File
	colour  bool
}

// screen is nil if what is printed goes elsewhere, or is for programs.
func (p *program) screen() *screen {
	in, typed := p.in.(*os.File)
	out, shown := p.out.(*os.File)
	if p.output == "json" || !typed || !shown || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) ||
		os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &screen{in, out, os.Getenv("NO_COLOR") == ""}
}

// paint is a text in a colour, if there are colours.
func (s *screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// topView shows what is asked for again and again.
type topView struct {
	*screen
	ask     func(context.Context) (*topReport, error)
	address string
	order   string

	report        *topReport
	problem       error // why there is no newer report
	paused        bool
	width, height int
}

// run shows it until somebody presses q, or ctx ends. The terminal is then as it was.
func (v *topView) run(ctx context.Context) (err error) {
	if v.report, err = v.ask(ctx); err != nil {
		return err
	}
	before, err := term.MakeRaw(int(v.in.Fd()))
	if err != nil {
		return err
	}
	defer func() {
		_, _ = v.out.WriteString(closePage)
		_ = term.Restore(int(v.in.Fd()), before)
	}()
	if _, err := v.out.WriteString(openPage); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return v.watch(ctx, readKeys(ctx, v.in))
}

// watch asks beside, so that keys are heard meanwhile.
func (v *topView) watch(ctx context.Context, keys <-chan byte) error {
	type news struct {
		report *topReport
		err    error
	}
	answers, asking := make(chan news, 1), false
	again, size := time.NewTicker(topEvery), time.NewTicker(sizeEvery)
	defer again.Stop()
	defer size.Stop()
	v.resized()
	for draw := true; ; {
		if draw {
			if _, err := v.out.WriteString(v.page()); err != nil {
				return err
			}
		}
		draw = true
		select {
		case <-ctx.Done():
			return nil
		case key, ok := <-keys:
			if !ok || v.press(key) {
				return nil
			}
		case got := <-answers:
			asking = false
			if v.problem = got.err; got.err == nil {
				v.report = got.report
			}
		case <-again.C:
			if draw = false; v.paused || asking {
				break
			}
			asking = true
			go func() {
				r, err := v.ask(ctx)
				answers <- news{r, err}
			}()
		case <-size.C:
			draw = v.resized()
		}
	}
}

// readKeys ends when there is nobody before the terminal any more, or with the program: nothing ends a read of a terminal.
func readKeys(ctx context.Context, in io.Reader) <-chan byte {
	keys := make(chan byte)
	go func() {
		defer close(keys)
		for key := make([]byte, 1); ; {
			if n, err := in.Read(key); err != nil || n == 0 {
				return
			}
			select {
			case keys <- key[0]:
			case <-ctx.Done():
				return
			}
		}
	}()
	return keys
}

// press does what a key is for, and says whether that is to end.
func (v *topView) press(key byte) (quit bool) {
	switch key {
	case 'q', 3, 4: // control C and D, which are keys now
		return true
	case 'r':
		v.order = byDenied
	case 'n':
		v.order = byNear
	case 's':
		v.order = map[string]string{byDenied: byRule, byRule: bySubject, bySubject: byDenied, byNear: byNear}[v.order]
	case ' ':
		v.paused = !v.paused
	}
	return false
}

// resized looks how large the window is.
func (v *topView) resized() bool {
	width, height, err := term.GetSize(int(v.out.Fd()))
	if err != nil || height == 0 {
		width, height = 80, 24
	}
	changed := width != v.width || height != v.height
	v.width, v.height = width, height
	return changed
}

// page is all that is to be seen, to be written over what was there.
func (v *topView) page() string {
	r := *v.report
	r.order = v.order
	state := ""
	if v.paused {
		state = "  paused"
	}
	lines := []string{v.paint("1", "headgate top "+printable(v.address)+state), r.head()}
	switch {
	case v.problem != nil:
		lines = append(lines, v.paint("31", printable(v.problem.Error())))
	case r.Problem != "":
		lines = append(lines, v.paint("31", printable(missingText(&r.Coverage))))
	default:
		lines = append(lines, "")
	}
	rows := r.rows(v.order)
	heads, body, _ := strings.Cut(wording.Table("", rows...), "\n")
	if lines = append(lines, v.paint("7", heads)); len(rows) == 1 {
		body = r.nobody(v.order) + "\n"
	}
	lines = append(lines, strings.Split(strings.TrimSuffix(body, "\n"), "\n")...)
	keys := fmt.Sprintf("q quit  r denied (%d)  n near a limit (%d)  s sort: %s  space pause", len(r.Denied), len(r.Near), v.order)
	if r.ShowSubjects != string(config.ShowClear) {
		keys += "  (names: show_subjects: clear)"
	}
	var b bytes.Buffer
	b.WriteString(toTop)
	for _, line := range lines[:min(len(lines), max(v.height-1, 0))] {
		b.WriteString(line + clearLine)
	}
	b.WriteString(keys + clearRest)
	return b.String()
}
