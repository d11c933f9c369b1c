package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/term"
)

// pty is a pseudo-terminal that a test controls.
type pty struct {
	t             *testing.T
	master, slave *os.File
	shown         serverLog
}

func ioctl[T any](t *testing.T, file *os.File, what uintptr, value *T) {
	t.Helper()
	at := uintptr(unsafe.Pointer(value)) //nolint:gosec // G103: ioctl needs a pointer
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), what, at); errno != 0 {
		t.Fatal(errno)
	}
}

func openPTY(t *testing.T) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	var locked, number int32
	ioctl(t, master, syscall.TIOCSPTLCK, &locked)
	ioctl(t, master, syscall.TIOCGPTN, &number)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &pty{t: t, master: master, slave: slave}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = master.WriteTo(&p.shown)
	}()
	p.resize(40)
	t.Cleanup(func() {
		p.press("\n") // ends a pending read of a key
		_ = slave.Close()
		<-read
		_ = master.Close()
	})
	return p
}

// resize sets the number of lines of the terminal.
func (p *pty) resize(lines uint16) {
	p.t.Helper()
	ioctl(p.t, p.slave, syscall.TIOCSWINSZ, &[4]uint16{lines, 100})
}

// page returns the visible text.
func (p *pty) page() string {
	_, page, _ := cutLast(strings.TrimSuffix(p.shown.String(), closePage), toTop)
	return page
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

func (p *pty) shows(words ...string) {
	p.t.Helper()
	for _, w := range words {
		eventually(p.t, fmt.Sprintf("%q on the screen", w), func() bool { return strings.Contains(p.page(), w) })
	}
}

func (p *pty) press(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// topServer starts a server whose nth response reports 1000*n denials. It fails while unavailable is set.
func topServer(t *testing.T) (address string, calls *atomic.Int64, unavailable *atomic.Bool) {
	t.Helper()
	calls, unavailable = &atomic.Int64{}, &atomic.Bool{}
	server := newHTTPServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := calls.Add(1)
		if unavailable.Load() {
			http.Error(w, "", http.StatusBadGateway)
			return
		}
		var rows []string
		for i := range 30 {
			rows = append(rows, fmt.Sprintf(`{"rule": "r%02d", "subject": "s", "attributes": {"user": "u%02[1]d\u001b]0;evil\u0007"}, "denied": %d}`,
				i, 1000*n-int64(i)))
		}
		_, _ = fmt.Fprintf(w, `{"windowSeconds": 300, "at": "2026-11-15T12:00:00Z", "nodes": 3, "nodesAnswered": 3, "showSubjects": "clear",
			"denied": [%s], "near": [{"rule": "login", "limit": "day", "subject": "x", "used": 9, "of": 10}]}`, strings.Join(rows, ","))
	}))
	return server.URL, calls, unavailable
}

// live runs top on the terminal. The returned function waits for its end and returns its error.
func (p *pty) live(ctx context.Context, address string) (ended func() error) {
	done := make(chan error, 1)
	go func() {
		done <- (&program{in: p.slave, out: p.slave, log: os.Stderr}).run(ctx, []string{"top", "--server", address, "--count", "30"})
	}()
	return func() error { return <-done }
}

// TestTopLive presses the keys of the live view, resizes the terminal and quits.
func TestTopLive(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	t.Setenv("NO_COLOR", "1")
	address, calls, unavailable := topServer(t)
	p := openPTY(t)
	before, err := term.GetState(int(p.slave.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	ended := p.live(t.Context(), address)
	p.shows("headgate top "+address, "3 of 3 nodes responded", "1,000", `r29   user=u29\x1b]0;evil\a`, "q quit  r denied (30)  n near a limit (1)")
	if raw, err := term.GetState(int(p.slave.Fd())); err != nil || reflect.DeepEqual(raw, before) {
		t.Errorf("the terminal is not in raw mode: %v", err)
	}
	p.shows("2,000") // automatic refresh
	p.press("n")
	p.shows("90 %  9 of 10  login (day)  x", "s sort: near")
	p.press("rs")
	p.shows("s sort: rule", "r00")
	p.press(" ")
	p.shows("paused")
	p.resize(10)
	eventually(t, "a smaller page", func() bool { return strings.Count(p.page(), "\n") == 9 && strings.Contains(p.page(), "q quit") })
	n := calls.Load()
	unavailable.Store(true)
	p.press(" ")
	p.shows("not headgate's admin API", fmt.Sprintf("%d,000", n))
	unavailable.Store(false)
	eventually(t, "recovery", func() bool { return !strings.Contains(p.page(), "not headgate's") })
	p.press("q")
	if err := ended(); err != nil {
		t.Error(err)
	}
	p.isRestored(before)
	if strings.Contains(p.shown.String(), "\x1b[3") || strings.Contains(p.shown.String(), "\x1b]0") {
		t.Error("the output has colours despite NO_COLOR, or unescaped values of clients")
	}
}

func (p *pty) isRestored(before *term.State) {
	p.t.Helper()
	after, err := term.GetState(int(p.slave.Fd()))
	if err != nil || !reflect.DeepEqual(after, before) {
		p.t.Errorf("the terminal is not restored: %v", err)
	}
	eventually(p.t, "the page is closed", func() bool { return strings.HasSuffix(p.shown.String(), closePage) })
}

// TestTopRestoresTerminal checks that the terminal is restored after Ctrl-C and after a signal.
func TestTopRestoresTerminal(t *testing.T) {
	t.Parallel()
	address, _, unavailable := topServer(t)
	for name, end := range map[string]func(p *pty, stop func()){
		"Ctrl-C":   func(p *pty, _ func()) { p.press("\x03") },
		"a signal": func(_ *pty, stop func()) { stop() },
	} {
		p := openPTY(t)
		before, err := term.GetState(int(p.slave.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := p.live(ctx, address)
		p.shows("q quit")
		end(p, stop)
		if err := ended(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		stop()
		p.isRestored(before)
	}
	unavailable.Store(true)
	p := openPTY(t)
	if err := p.live(t.Context(), address)(); err == nil || strings.Contains(p.shown.String(), openPage) {
		t.Errorf("server unavailable: %v", err)
	}
}

// TestTopOnce checks that top prints once without a terminal, with --once and with JSON.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	address, calls, _ := topServer(t)
	got := start(t, "top", "--server", address)
	if got.code != 0 || calls.Load() != 1 || !strings.Contains(got.out, "\n1 subject near a limit: headgate top --server ") {
		t.Errorf("%+v", got)
	}
	p := openPTY(t)
	for _, flag := range []string{"--once", "--output=json"} {
		if err := (&program{in: p.slave, out: p.slave}).run(t.Context(), []string{"top", "--server", address, flag}); err != nil {
			t.Error(err)
		}
	}
	if calls.Load() != 3 {
		t.Errorf("%d calls", calls.Load())
	}
	var r topReport
	got = start(t, "top", "--server", address, "--output", "json")
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || len(r.Denied) != 30 || r.Near[0].Of != 10 ||
		!strings.HasPrefix(got.out, "{\n  \"version\": 1,\n") {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestColour checks that verdicts are painted on a terminal only, and not with NO_COLOR.
func TestColour(t *testing.T) {
	run := func(out io.Writer) {
		t.Helper()
		if err := (&program{out: out, log: io.Discard}).run(t.Context(), []string{"rules", "validate", "testdata/rules.yaml"}); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	painted := openPTY(t)
	run(painted.slave)
	eventually(t, "colours", func() bool {
		text := painted.shown.String()
		return strings.HasPrefix(text, "\x1b[32mok\x1b[0m: 7 rules") && strings.Contains(text, "\n\x1b[33mwarning\x1b[0m: rule")
	})
	var plain strings.Builder
	run(&plain)
	t.Setenv("NO_COLOR", "1")
	without := openPTY(t)
	run(without.slave)
	eventually(t, "text", func() bool { return strings.Contains(without.shown.String(), "warning: rule") })
	if all := plain.String() + without.shown.String(); strings.Contains(all, "\x1b") {
		t.Errorf("%q", all)
	}
	if got := paint("  problem  eviction  a warning\n10.0.0.1:8082  degraded  ok\n"); got != "  \x1b[31mproblem\x1b[0m  eviction  a warning\n10.0.0.1:8082  \x1b[33mdegraded\x1b[0m  ok\n" {
		t.Errorf("%q", got)
	}
}

// TestProgress checks that long work shows one line that is removed at the end, on a terminal only.
func TestProgress(t *testing.T) {
	t.Setenv("TERM", "xterm")
	p := openPTY(t)
	args := []string{"rules", "test", "testdata/rules_test.yaml", "testdata/rules_test.yaml"}
	if err := (&program{out: io.Discard, log: p.slave}).run(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	const line = "\r\x1b[K"
	eventually(t, "progress", func() bool {
		return p.shown.String() == line+"1 of 2: testdata/rules_test.yaml"+line+"2 of 2: testdata/rules_test.yaml"+line
	})
	var log strings.Builder
	if err := (&program{out: io.Discard, log: &log}).run(t.Context(), args); err != nil || log.String() != "" {
		t.Errorf("%v: %q", err, log.String())
	}
}
