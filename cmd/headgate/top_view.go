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
	refreshInterval = 2 * time.Second
	// resizeInterval is how often the size of the terminal is polled.
	resizeInterval = 200 * time.Millisecond

	// The view uses the alternate screen without cursor and line wrapping. Closing it restores the previous screen.
	openPage  = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	closePage = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	toTop     = "\x1b[H"
	clearLine = "\x1b[K\r\n"
	clearRest = "\x1b[J"
)

// screen is an interactive terminal.
type screen struct {
	in, out *os.File
	colour  bool
}

// screen returns the terminal, or nil if the input or output is not a terminal or the format is not human.
func (p *program) screen() *screen {
	in, inOK := p.in.(*os.File)
	out, outOK := p.out.(*os.File)
	if p.output != outputHuman || !inOK || !outOK || !term.IsTerminal(int(in.Fd())) || !isTerminal(out) {
		return nil
	}
	return &screen{in, out, os.Getenv("NO_COLOR") == ""}
}

// paint wraps text in a terminal attribute, unless NO_COLOR is set.
func (s *screen) paint(code, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// topView is the live view of top, refreshed every refreshInterval.
type topView struct {
	*screen
	fetch   func(context.Context) (*topReport, error)
	address string
	order   string

	report        *topReport
	problem       error // why the last refresh failed
	paused        bool
	width, height int
}

// run shows the view until the user presses q or ctx ends, and then restores the terminal.
func (v *topView) run(ctx context.Context) (err error) {
	if v.report, err = v.fetch(ctx); err != nil {
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

// watch redraws the view. It fetches reports in the background, so that it can react to keys at any time.
func (v *topView) watch(ctx context.Context, keys <-chan byte) error {
	type response struct {
		report *topReport
		err    error
	}
	responses, fetching := make(chan response, 1), false
	refresh, size := time.NewTicker(refreshInterval), time.NewTicker(resizeInterval)
	defer refresh.Stop()
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
		case got := <-responses:
			fetching = false
			if v.problem = got.err; got.err == nil {
				v.report = got.report
			}
		case <-refresh.C:
			if draw = false; v.paused || fetching {
				break
			}
			fetching = true
			go func() {
				r, err := v.fetch(ctx)
				responses <- response{r, err}
			}()
		case <-size.C:
			draw = v.resized()
		}
	}
}

// readKeys sends the keys that the user presses. It ends when the terminal is closed; a pending read cannot be cancelled, so it may
// last until the program exits.
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

// press handles a key and reports whether to quit.
func (v *topView) press(key byte) (quit bool) {
	switch key {
	case 'q', 3, 4: // Ctrl-C and Ctrl-D, which are plain keys in raw mode
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

// resized reads the size of the terminal and reports whether it changed.
func (v *topView) resized() bool {
	width, height, err := term.GetSize(int(v.out.Fd()))
	if err != nil || height == 0 {
		width, height = 80, 24
	}
	changed := width != v.width || height != v.height
	v.width, v.height = width, height
	return changed
}

// page returns the whole screen, to be written over the previous one.
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
	header, body, _ := strings.Cut(wording.Table("", rows...), "\n")
	if lines = append(lines, v.paint("7", header)); len(rows) == 1 {
		body = emptyText(v.order) + "\n"
	}
	lines = append(lines, strings.Split(strings.TrimSuffix(body, "\n"), "\n")...)
	keys := fmt.Sprintf("q quit  r denied (%d)  n near a limit (%d)  s sort: %s  space pause", len(r.Denied), len(r.Near), v.order)
	if r.ShowSubjects != string(config.ShowClear) {
		keys += "  (subjects hashed; see show_subjects)"
	}
	var b bytes.Buffer
	b.WriteString(toTop)
	for _, line := range lines[:min(len(lines), max(v.height-1, 0))] {
		b.WriteString(line + clearLine)
	}
	b.WriteString(keys + clearRest)
	return b.String()
}
