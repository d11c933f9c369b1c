package testenv

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Program is a process: a gateway, a peer, Headgate itself.
type Program struct {
	os   *os.Process
	done chan struct{} // closed once it has been reaped
	log  Log
}

// spawn starts a child that dies with this process, even if this process is
// killed and no cleanup runs. Linux ties that to the thread that forked, and Go
// ends threads as it likes, so one goroutine keeps its thread for the child's
// whole life. Its log is what it prints, unless the caller reads its standard
// output.
func spawn(cmd *exec.Cmd) (*Program, error) {
	p := &Program{done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = &p.log
	}
	cmd.Stderr = &p.log
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // its error says "killed", which is how they all end
		}
	}()
	err := <-started
	p.os = cmd.Process
	return p, err
}

// Spawn starts a program, which ends with the test. Its log is what it prints,
// unless the caller reads its standard output.
func Spawn(t testing.TB, command *exec.Cmd) *Program {
	t.Helper()
	p, err := spawn(command)
	NoError(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of %s:\n%.10000s", filepath.Base(command.Path), p.Output())
		}
	})
	return p
}

// Run is Spawn of a server. It returns when something listens at the address.
func Run(t testing.TB, command *exec.Cmd, address string) *Program {
	t.Helper()
	p := Spawn(t, command)
	err := p.await(func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v\n%.10000s", command, err, p.Output())
	}
	return p
}

var errPortTaken = errors.New("port taken")

// await returns once the program is ready.
func (p *Program) await(ready func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := ready()
		switch {
		case err == nil:
			return nil
		case !p.running() && strings.Contains(p.Output(), "Address already in use"):
			return errPortTaken
		case !p.running():
			return errors.New("it exited while starting")
		case time.Now().After(deadline):
			return fmt.Errorf("not ready after %v: %w", patience, err)
		}
	}
}

// somewhere tries to start a server on other ports when someone else was
// quicker to bind one.
func somewhere(start func() error) (err error) {
	for range 10 {
		if err = start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	return err
}

// again starts a server on the port that it had, once that is free.
func again(start func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err := start(); !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			return err
		}
	}
}

// Done is closed when the program has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

func (p *Program) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// PID returns the program's process id.
func (p *Program) PID() int { return p.os.Pid }

// Output is what the program has printed so far.
func (p *Program) Output() string { return p.log.String() }

// Kill ends the program with SIGKILL and returns when it is gone. It works on a
// paused one too, and does not wake it: what clients had sent to it stays
// undone.
func (p *Program) Kill() {
	p.os.Kill()
	<-p.done
}

// Pause stops the program with SIGSTOP, as Server.Pause does.
func (p *Program) Pause() {
	p.os.Signal(syscall.SIGSTOP)
	awaitState(p.os.Pid, "TZ")
}

// Resume ends a Pause.
func (p *Program) Resume() { p.os.Signal(syscall.SIGCONT) }

// CPU is the user and system time that the program has used so far, to a
// hundredth of a second.
func (p *Program) CPU() time.Duration {
	var hundredths int64
	if stat := procStat(p.os.Pid); len(stat) > 0 {
		for _, field := range stat[11:13] {
			n, _ := strconv.ParseInt(field, 10, 64)
			hundredths += n
		}
	}
	return time.Duration(hundredths) * 10 * time.Millisecond
}

// awaitState returns when a process is in one of some states: T for one that
// is stopped and Z for one that has ended, whether or not somebody has asked
// how.
func awaitState(pid int, states string) {
	for !strings.Contains(states, processState(pid)) {
		time.Sleep(time.Millisecond)
	}
}

func processState(pid int) string {
	if stat := procStat(pid); len(stat) > 0 {
		return stat[0]
	}
	return "Z"
}

// procStat is what proc(5) says of a process, from its state on, which follows
// its name in parentheses; nothing if there is no such process, or no such file
// system.
func procStat(pid int) []string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(rest)
}
