package testenv

import (
	"errors"
	"fmt"
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

// Program is a running process, such as a gateway, a peer or Headgate itself.
type Program struct {
	os   *os.Process
	done chan struct{} // closed when the process has been reaped
	log  Log
}

// spawn starts a child that dies with this process, even if this process is killed and no cleanup runs. Linux ties that to the forking
// thread, and Go may end threads at any time, so one goroutine keeps its thread locked as long as the child lives. The log is the
// child's output, without the standard output if the caller reads it.
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
			cmd.Wait() // the error is always "killed"
		}
	}()
	err := <-started
	p.os = cmd.Process
	return p, err
}

// Spawn starts a program that ends with the test. The log is its output, without the standard output if the caller reads it.
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

// Run starts a server with Spawn and returns when it listens at the address.
func Run(t testing.TB, command *exec.Cmd, address string) *Program {
	t.Helper()
	return (&Place{}).Run(t, command, address)
}

var errPortTaken = errors.New("port taken")

// await waits until ready returns nil.
func (p *Program) await(ready func() error) error {
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		err := ready()
		switch {
		case err == nil:
			return nil
		case !p.running() && strings.Contains(p.Output(), "Address already in use"):
			return errPortTaken
		case !p.running():
			return errors.New("exited while starting")
		case time.Now().After(deadline):
			return fmt.Errorf("not ready after %v: %w", timeout, err)
		}
	}
}

// onFreePort calls start up to ten times, until its port is not taken by another process.
func onFreePort(start func() error) (err error) {
	for range 10 {
		if err = start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	return err
}

// onSamePort calls start until the server's previous port is free.
func onSamePort(start func() error) error {
	for deadline := time.Now().Add(timeout); ; time.Sleep(50 * time.Millisecond) {
		if err := start(); !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			return err
		}
	}
}

// Done returns a channel that is closed when the program has ended.
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

// Output returns the program's output so far.
func (p *Program) Output() string { return p.log.String() }

// Kill ends the program with SIGKILL and returns when it has ended. It also ends a paused program without resuming it, so requests sent
// during the Pause are not processed.
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

// CPU returns the user and system time used by the program so far, with a resolution of 10 ms.
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

// awaitState waits until a process is in one of the states: T for stopped, Z for ended, whether or not it has been reaped.
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

// procStat returns the fields of /proc/PID/stat from the state on, which follows the name in parentheses. It returns none if the
// process or the file system does not exist.
func procStat(pid int) []string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(rest)
}
