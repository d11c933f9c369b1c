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

// postgresUser runs the server if the test runs as root, because PostgreSQL does not run as root.
const postgresUser = "postgres"

// Postgres is a PostgreSQL server. It stays valid after Kill, for Restart.
type Postgres struct {
	bin   string // the directory of PostgreSQL's programs
	dir   string // all files of the server; owned by the server's user
	port  int
	small bool // whether dir is a separate file system, which Fill may fill
	// database is the name of the database, or "" for postgres.
	database string

	mu     sync.Mutex
	server *Program // the postmaster
}

// StartPostgres starts a PostgreSQL server with an empty database. It accepts connections from 127.0.0.1 without a password and ends
// with the test.
//
// It does not fsync. A killed server loses nothing by that: the kernel has the data of a commit, and only a crash of the machine would
// lose it.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	p := newPostgres(t)
	p.create(t)
	return p
}

// newPostgres prepares a server and its cleanup. Its directory is not in the test's TempDir, which only the test's user may enter.
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

// postgresPrograms returns the directory of PostgreSQL's programs: that of the server, with symlinks resolved. Debian does not add it
// to PATH.
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

// own makes the server's user the owner of the directory.
func (p *Postgres) own(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	u, err := user.Lookup(postgresUser)
	if err != nil {
		t.Fatalf("PostgreSQL does not run as root, and there is no other user to run it: %v", err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	NoError(t, os.Chown(p.dir, uid, gid))
}

// create initializes the empty directory and starts the server.
func (p *Postgres) create(t testing.TB) {
	t.Helper()
	p.must(t, "initdb", "--pgdata", p.data(), "--username", "postgres", "--auth", "trust",
		"--no-locale", "--encoding", "UTF8", "--no-sync")
	p.start(t)
}

// start starts the server for the first time.
func (p *Postgres) start(t testing.TB) {
	t.Helper()
	err := onFreePort(func() (err error) {
		if p.port, err = freePort(); err != nil {
			return err
		}
		return p.run()
	})
	if err != nil {
		t.Fatalf("postgres: %v", err)
	}
}

// run starts the server and returns once it accepts connections.
func (p *Postgres) run() error {
	server, err := spawn(p.command("postgres", "-D", p.data(), "-p", strconv.Itoa(p.port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=",
		"-c", "fsync=off",
		"-c", "dynamic_shared_memory_type=mmap")) // in files that are removed with its directory
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	return server.await(p.ready)
}

// command returns a command that runs one of PostgreSQL's programs as the server's user. Changing the user clears the parent death
// signal that spawn sets, hence --pdeathsig.
func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	args = append([]string{filepath.Join(p.bin, name)}, args...)
	if os.Getuid() == 0 {
		args = append([]string{
			"setpriv", "--reuid", postgresUser, "--regid", postgresUser, "--init-groups", "--pdeathsig", "KILL",
		}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"} // without the user's PGDATA, PGOPTIONS or language
	return cmd
}

// must runs one of PostgreSQL's programs and waits for it. A failure ends the test.
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

// status returns the lines of the server's status file: the first is its process id, the seventh the key and id of its shared memory,
// the eighth its state.
func (p *Postgres) status() []string {
	text, _ := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
	return strings.Split(string(text), "\n")
}

// ready returns nil if the server accepts connections.
func (p *Postgres) ready() error {
	status := p.status()
	if len(status) < 8 || status[0] != strconv.Itoa(p.server.PID()) {
		return errors.New("no status") // none yet, or that of the previous process
	}
	if state := strings.TrimSpace(status[7]); state != "ready" && state != "standby" {
		return errors.New(state)
	}
	return nil
}

// URL returns the connection URL. It is the same before and after a Restart.
func (p *Postgres) URL() string {
	return "postgres://postgres@" + localAddr(p.port) + "/" + cmp.Or(p.database, "postgres") + "?sslmode=disable"
}

// Kill ends all processes of the server with SIGKILL, so that none can notify clients, and returns when they have ended.
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

// halt stops the postmaster, so that it neither forks nor reaps, and returns its children. They are not in one process group.
func (p *Postgres) halt() (children []int) {
	p.server.Pause()
	if !p.server.running() {
		return nil // its process id may be reused
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

// sweep removes the System V shared memory segment of a killed server. A machine has a limited number of segments.
func (p *Postgres) sweep() {
	if status := p.status(); len(status) >= 7 {
		if _, id, ok := strings.Cut(strings.TrimSpace(status[6]), " "); ok {
			_ = exec.Command("ipcrm", "-m", strings.TrimSpace(id)).Run() // fails if it is already removed
		}
	}
}

// Restart kills the server if it runs, starts it again with the same port and data, and returns when it accepts connections.
func (p *Postgres) Restart(t testing.TB) {
	t.Helper()
	p.Kill()
	if err := onSamePort(p.run); err != nil {
		t.Fatalf("postgres: %v", err)
	}
}

// Pause stops all processes of the server with SIGSTOP. The kernel keeps its connections and accepts new ones, but the server does not
// respond. If the test itself is killed during a Pause, the processes stay.
func (p *Postgres) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range p.halt() {
		syscall.Kill(pid, syscall.SIGSTOP)
		awaitState(pid, "TZ")
	}
}

// Resume ends a Pause. The server then processes what was sent to it during the Pause.
func (p *Postgres) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pid := range p.halt() {
		syscall.Kill(pid, syscall.SIGCONT)
	}
	p.server.Resume()
}
