package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is one server process, or the place of one that was killed.
type Server struct {
	binary  string
	dir     string
	port    int
	cluster bool     // whether it is a cluster node, which has a second port
	busPort int      // that one
	extra   []string // arguments besides those that every server gets
	clock   *clock   // nil unless faked

	mu      sync.Mutex
	program *Program
	paused  bool
}

// Start starts one standalone server. extra are more config arguments, such as
// "--maxmemory", "1mb".
func Start(t testing.TB, e Engine, extra ...string) *Server {
	t.Helper()
	s := newServer(t, e, dataArgs(extra))
	startAll(t, s)
	return s
}

// dataArgs are for servers that hold data, as opposed to sentinels.
func dataArgs(extra []string) []string {
	return append([]string{
		"--save", "",
		"--appendonly", "no",
		"--enable-debug-command", "yes",
		"--repl-diskless-sync-delay", "0", // five seconds, to gather more replicas
	}, extra...)
}

// newServer prepares a server and its end; startAll starts it.
func newServer(t testing.TB, e Engine, extra []string) *Server {
	t.Helper()
	s := &Server{binary: e.binary(t), dir: t.TempDir(), extra: extra}
	s.configure(t, "")
	t.Cleanup(s.Kill)
	return s
}

// configure writes what the server may itself rewrite: Sentinel changes roles
// and expects them to outlast a restart, so they are not arguments.
func (s *Server) configure(t testing.TB, conf string) {
	t.Helper()
	NoError(t, os.WriteFile(s.confPath(), []byte(conf), 0o600))
}

// startAll starts servers side by side, each on a free port.
func startAll(t testing.TB, servers ...*Server) {
	t.Helper()
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = somewhere(s.start) })
	}
	wg.Wait()
	for i, s := range servers {
		s.checkStarted(t, errs[i])
	}
}

func (s *Server) checkStarted(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		log := ""
		if s.program != nil {
			log = s.program.Output()
		}
		t.Fatalf("%s: %v\n%s", filepath.Base(s.binary), err, log[max(0, len(log)-3000):])
	}
}

// start runs the server on a free port.
func (s *Server) start() (err error) {
	if s.port, err = freePort(); err != nil {
		return err
	}
	if s.cluster {
		if s.busPort, err = freePort(); err != nil {
			return err
		}
	}
	return s.run()
}

// run starts the process and returns once it serves commands.
func (s *Server) run() error {
	args := []string{
		s.confPath(),
		"--port", strconv.Itoa(s.port),
		"--bind", "127.0.0.1",
		"--protected-mode", "no",
		"--dir", s.dir,
	}
	if s.cluster {
		args = append(args, "--cluster-port", strconv.Itoa(s.busPort))
	}
	cmd := exec.Command(s.binary, append(args, s.extra...)...)
	cmd.Dir = s.dir
	if s.clock != nil {
		cmd.Env = append(os.Environ(), s.clock.env()...)
	}
	program, err := spawn(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.program, s.paused = program, false
	s.mu.Unlock()
	return program.await(s.ready)
}

// ready also asks who answers: the port may be another test's, whose server was
// quicker to bind it than ours will be to fail.
func (s *Server) ready() error {
	if _, err := s.Do("PING"); err != nil {
		return err
	}
	info, err := s.info("server")
	if err != nil {
		return err
	}
	if pid := info["process_id"]; pid != strconv.Itoa(s.PID()) {
		return fmt.Errorf("process %s answers, not %d", pid, s.PID())
	}
	return nil
}

// Addr is the server's host:port, the same before and after a Restart.
func (s *Server) Addr() string { return localAddr(s.port) }

// Do sends one command over a connection of its own, for at most two seconds.
// A reply is a string, an int64, nil or a []any of these; an error reply is
// returned as the error, its text unchanged (inside a []any it is an item).
func (s *Server) Do(args ...string) (any, error) {
	return roundTrip(s.Addr(), args, 2*time.Second)
}

// Must is Do where an error ends the test. It waits longer: a slow machine is
// no error.
func (s *Server) Must(t testing.TB, args ...string) any {
	t.Helper()
	reply, err := roundTrip(s.Addr(), args, patience)
	if err != nil {
		t.Fatalf("%s: %s: %v", s.Addr(), strings.Join(args, " "), err)
	}
	return reply
}

// Kill ends the server with SIGKILL and returns when it is gone.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.program == nil {
		return
	}
	s.program.Kill()
	if s.clock != nil {
		s.clock.sweep(s.program.PID())
	}
}

// Restart starts the server again after Kill, with the same port, arguments and
// directory, and returns when it serves commands. It comes back empty unless a
// replica or extra arguments saved its data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	s.checkStarted(t, again(s.run))
}

// Pause stops the server with SIGSTOP: it keeps its connections and accepts new
// ones, as the kernel does that, but answers nothing.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.program.Pause()
	s.paused = true
}

// Resume ends a Pause. The server then does what was sent to it meanwhile.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.program.Resume()
	s.paused = false
}

// PID is the process id, of the last process if the server is down.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.program.PID()
}

// alive says whether the server can be expected to answer.
func (s *Server) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.paused && s.program.running()
}

// CPU is the user and system time the process has used so far, all its threads
// together.
func (s *Server) CPU(t testing.TB) time.Duration {
	t.Helper()
	info := s.Info(t, "cpu")
	var total time.Duration
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		d, err := time.ParseDuration(info[name] + "s")
		if err != nil {
			t.Fatalf("%s: INFO %s: %v", s.Addr(), name, err)
		}
		total += d
	}
	return total
}

// UsedMemory is what the server has allocated, in bytes.
func (s *Server) UsedMemory(t testing.TB) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s.Info(t, "memory")["used_memory"], 10, 64)
	if err != nil {
		t.Fatalf("%s: INFO used_memory: %v", s.Addr(), err)
	}
	return n
}

// Info is a section of INFO, by name.
func (s *Server) Info(t testing.TB, section string) map[string]string {
	t.Helper()
	return fields(s.Must(t, "INFO", section))
}

func (s *Server) info(section string) (map[string]string, error) {
	reply, err := s.Do("INFO", section)
	if err != nil {
		return nil, err
	}
	return fields(reply), nil
}

func (s *Server) confPath() string { return filepath.Join(s.dir, "server.conf") }
