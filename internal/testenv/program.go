package testenv

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Find is where a program is: among the tools that "make deps" has brought, or
// in PATH. Without it the test ends.
func Find(t testing.TB, name string) string {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	// Debian's servers are in sbin, which only root has in PATH.
	for _, place := range []string{filepath.Join(root, ".bin", name), name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(place); err == nil {
			return path
		}
	}
	missing(t, name)
	return ""
}

// BuildHeadgate compiles the program that users run, with flags of "go build" if there are any.
func BuildHeadgate(t testing.TB, flags ...string) (path string) {
	t.Helper()
	Long(t)
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "headgate")
	build := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"build", "-o", path}, flags, []string{"./cmd/headgate"})...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// repository is the directory that has the main module, at or above this one.
func repository() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "headgate")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("testenv: not in a clone of the repository")
		}
	}
	return "", err
}

// FreeAddress is a host:port nothing listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return localAddr(port)
}

// Program is a server of any other kind: a gateway, a peer, Headgate itself.
type Program struct {
	name string
	proc *process
	log  Log
}

// Spawn starts a program, which ends with the test. Its log is what it prints,
// unless the caller reads its standard output.
func Spawn(t testing.TB, command *exec.Cmd) *Program {
	t.Helper()
	p := &Program{name: filepath.Base(command.Path)}
	if command.Stdout == nil {
		command.Stdout = &p.log
	}
	command.Stderr = &p.log
	var err error
	p.proc, err = spawn(command)
	NoError(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of %s:\n%.10000s", p.name, p.Output())
		}
	})
	return p
}

// Run is Spawn of a server. It returns when something listens at the address.
func Run(t testing.TB, command *exec.Cmd, address string) *Program {
	t.Helper()
	p := Spawn(t, command)
	wait(t, p.name, func() error {
		if !p.proc.running() {
			t.Fatalf("%s has ended:\n%.10000s", command, p.Output())
		}
		conn, err := net.Dial("tcp", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return p
}

// Done is closed when the program has ended.
func (p *Program) Done() <-chan struct{} { return p.proc.done }

// PID returns the program's process id.
func (p *Program) PID() int { return p.proc.os.Pid }

// Output is what the program has printed so far.
func (p *Program) Output() string { return p.log.String() }

// Kill ends the program with SIGKILL and returns when it is gone.
func (p *Program) Kill() { p.proc.kill() }

// Pause stops the program with SIGSTOP, as Server.Pause does.
func (p *Program) Pause() { p.proc.pause() }

// Resume ends a Pause.
func (p *Program) Resume() { p.proc.resume() }

// CPU is the user and system time that the program has used so far, to a
// hundredth of a second.
func (p *Program) CPU() time.Duration { return cpu(p.proc.os.Pid) }
