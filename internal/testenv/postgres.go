package testenv

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// postgresUser runs the server where the test runs as root, which PostgreSQL
// denies to run as.
const postgresUser = "postgres"

// Postgres is one PostgreSQL server, or the place of one that was killed.
type Postgres struct {
	bin   string // the directory of its programs
	dir   string // everything it writes; it belongs to the server's user
	port  int
	small bool // whether dir is a file system of its own, which Fill may fill
	// database is the one to connect to, if it is not the first.
	database string

	mu     sync.Mutex
	server *Program // the postmaster, whose children do the work
}

// StartPostgres starts a PostgreSQL server with an empty database. It takes
// connections from 127.0.0.1, needs no password, and is gone with the test.
//
// It does not fsync. That loses nothing when the server is killed: what a commit
// wrote is the kernel's by then, and only the machine's own end would take it.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	p := newPostgres(t)
	p.create(t)
	return p
}

// newPostgres prepares a server and its end. Its directory is none of the
// test's own: those lie in one that only the test's user may enter.
func newPostgres(t testing.TB) *Postgres {
	t.Helper()
	Long(t)
	p := &Postgres{bin: postgresPrograms(t)}
	var err error
	p.dir, err = os.MkdirTemp("", "headgate-postgres-") //nolint:usetesting // see above
	NoError(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() && p.server != nil {
			log := p.server.Output()
			t.Logf("log of postgres, its end:\n%s", log[max(0, len(log)-5000):])
		}
		if err := os.RemoveAll(p.dir); err != nil {
			t.Error(err)
		}
	})
	p.own(t)
	return p
}

// postgresPrograms is where the programs are, all of them beside the server,
// which may be linked to. Debian keeps them out of PATH.
func postgresPrograms(t testing.TB) string {
	t.Helper()
	for _, place := range []string{"postgres", "/usr/lib/postgresql/15/bin/postgres"} {
		path, err := exec.LookPath(place)
		if err == nil {
			path, err = filepath.EvalSymlinks(path)
		}
		if err == nil {
			return filepath.Dir(path)
		}
	}
	missing(t, "postgres")
	return ""
}

// own gives the directory to the server's user.
func (p *Postgres) own(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	u, err := user.Lookup(postgresUser)
	if err != nil {
		t.Fatalf("PostgreSQL does not run as root, and there is nobody else to run it: %v", err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	NoError(t, os.Chown(p.dir, uid, gid))
}

// create fills the empty directory and starts the server.
func (p *Postgres) create(t testing.TB) {
	t.Helper()
	p.must(t, "initdb", "--pgdata", p.data(), "--username", "postgres", "--auth", "trust",
		"--no-locale", "--encoding", "UTF8", "--no-sync")
	p.start(t)
}

// start starts the server for the first time.
func (p *Postgres) start(t testing.TB) {
	t.Helper()
	err := somewhere(func() (err error) {
		if p.port, err = freePort(); err != nil {
			return err
		}
		return p.run()
	})
	if err != nil {
		t.Fatalf("postgres: %v", err)
	}
}

// run starts the server and returns once it takes connections.
func (p *Postgres) run() error {
	server, err := spawn(p.command("postgres", "-D", p.data(), "-p", strconv.Itoa(p.port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=",
		"-c", "fsync=off",
		"-c", "dynamic_shared_memory_type=mmap")) // that is, in files that go with its directory
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	return server.await(p.ready)
}

// command is one of PostgreSQL's programs, run by the server's user. Changing
// the user undoes what spawn arranges for the child's end, hence pdeathsig.
func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	args = append([]string{filepath.Join(p.bin, name)}, args...)
	if os.Getuid() == 0 {
		args = append([]string{
			"setpriv", "--reuid", postgresUser, "--regid", postgresUser, "--init-groups", "--pdeathsig", "KILL",
		}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} // nobody's PGDATA, PGOPTIONS or language
	return cmd
}

// must runs one of PostgreSQL's programs to its end.
func (p *Postgres) must(t testing.TB, name string, args ...string) {
	t.Helper()
	cmd := p.command(name, args...)
	program, err := spawn(cmd)
	NoError(t, err)
	if <-program.done; !cmd.ProcessState.Success() {
		t.Fatalf("%s: %v\n%.10000s", name, cmd.ProcessState, program.Output())
	}
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// status is the file in which a server tells about itself, line by line: first
// its process, seventh the key and id of its shared memory, eighth its state.
func (p *Postgres) status() []string {
	text, _ := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	return strings.Split(string(text), "\n")
}

func (p *Postgres) ready() error {
	status := p.status()
	if len(status) < 8 || status[0] != strconv.Itoa(p.server.PID()) {
		return errors.New("no status") // none yet, or that of the server before
	}
	if state := strings.TrimSpace(status[7]); state != "ready" && state != "standby" {
		return errors.New(state)
	}
	return nil
}

// URL is how clients connect, the same before and after a Restart.
func (p *Postgres) URL() string {
	return "postgres://postgres@" + localAddr(p.port) + "/" + cmp.Or(p.database, "postgres") + "?sslmode=disable"
}

// Kill ends the whole server at once with SIGKILL, so that no part of it can
// tell clients, and returns when it is gone.
func (p *Postgres) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil {
		return
	}
	children := p.halt()
	for _, pid := range children {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	p.server.Kill()
	for _, pid := range children {
		awaitState(pid, "Z")
	}
	p.sweep()
}

// halt stops the postmaster, so that it neither forks nor reaps, and returns
// its children. They are in no group that could be signaled as one.
func (p *Postgres) halt() (children []int) {
	p.server.Pause()
	if !p.server.running() {
		return nil // its id may be another's by now
	}
	pid := p.server.PID()
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, field := range strings.Fields(string(list)) {
		if child, err := strconv.Atoi(field); err == nil {
			children = append(children, child)
		}
	}
	return children
}

// sweep removes what outlives a killed server otherwise: a segment of System V
// shared memory, of which a machine has only so many.
func (p *Postgres) sweep() {
	if status := p.status(); len(status) >= 7 {
		if _, id, ok := strings.Cut(strings.TrimSpace(status[6]), " "); ok {
			_ = exec.Command("ipcrm", "-m", strings.TrimSpace(id)).Run() // fails if it is gone already
		}
	}
}

// Restart starts the server again after Kill, with its port and data, and
// returns when it takes connections.
func (p *Postgres) Restart(t testing.TB) {
	t.Helper()
	p.Kill()
	if err := again(p.run); err != nil {
		t.Fatalf("postgres: %v", err)
	}
}

// Pause stops all processes of the server with SIGSTOP: it keeps its
// connections and accepts new ones, as the kernel does that, but answers
// nothing. If the test itself is killed meanwhile, they stay.
func (p *Postgres) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range p.halt() {
		syscall.Kill(pid, syscall.SIGSTOP)
		awaitState(pid, "TZ")
	}
}

// Resume ends a Pause. The server then does what was sent to it meanwhile.
func (p *Postgres) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range p.halt() {
		syscall.Kill(pid, syscall.SIGCONT)
	}
	p.server.Resume()
}
