package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is a server process. It stays valid after Kill, for Restart.
type Server struct {
	binary  string
	place   *Place
	dir     string
	port    int
	cluster bool     // whether it is a cluster node, which has a bus port
	busPort int      // of a cluster node
	extra   []string // additional arguments
	clock   *clock   // nil unless faked

	mu      sync.Mutex
	program *Program
	paused  bool
}

// Start starts one standalone server. extra are additional config arguments, such as "--maxmemory", "1mb".
func Start(t testing.TB, e Engine, extra ...string) *Server {
	t.Helper()
	s := newServer(t, e, dataArgs(extra))
	startAll(t, s)
	return s
}

// dataArgs returns the arguments of a server that holds data, as opposed to a sentinel.
func dataArgs(extra []string) []string {
	return append([]string{
		"--save", "",
		"--appendonly", "no",
		"--enable-debug-command", "yes",
		"--repl-diskless-sync-delay", "0", // the default of five seconds waits for more replicas
	}, extra...)
}

// newServer prepares a server and its cleanup; startAll starts it.
func newServer(t testing.TB, e Engine, extra []string) *Server {
	t.Helper()
	s := &Server{binary: e.binary(t), place: e.place, dir: t.TempDir(), extra: extra}
	if s.place == nil {
		s.place = &Place{}
	}
	s.configure(t, "")
	t.Cleanup(s.Kill)
	return s
}

// configure writes the part of the config that the server itself may rewrite: Sentinel changes roles and expects them to survive a
// restart, so they are not arguments.
func (s *Server) configure(t testing.TB, conf string) {
	t.Helper()
	NoError(t, os.WriteFile(s.confPath(), []byte(conf), 0o600))
}

// startAll starts servers in parallel, each on a free port.
func startAll(t testing.TB, servers ...*Server) {
	t.Helper()
	errs := make([]error, len(servers))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() { errs[i] = onFreePort(s.start) })
	}
	wg.Wait()
	for i, s := range servers {
		s.checkStarted(t, errs[i])
	}
}

// checkStarted ends the test with the server's log if err is not nil.
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
	cmd := s.place.Command(s.binary, append(args, s.extra...)...)
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

// ready returns nil if the server responds. It checks the process id, because the port may belong to the server of another test that
// bound it first.
func (s *Server) ready() error {
	if _, err := s.Do("PING"); err != nil {
		return err
	}
	info, err := s.info("server")
	if err != nil {
		return err
	}
	if pid := info["process_id"]; pid != strconv.Itoa(s.PID()) {
		return fmt.Errorf("process %s responds, not %d", pid, s.PID())
	}
	return nil
}

// Addr returns the server's host:port. It is the same before and after a Restart.
func (s *Server) Addr() string { return localAddr(s.port) }

// Do sends one command over a new connection, with a timeout of two seconds. A reply is a string, an int64, nil or a []any of these. An
// error reply is returned as the error, with its text unchanged (inside a []any it is an item).
func (s *Server) Do(args ...string) (any, error) {
	return s.roundTrip(args, 2*time.Second)
}

// Must does the same as Do, but an error ends the test, and the timeout is longer, because a slow machine must not fail the test.
func (s *Server) Must(t testing.TB, args ...string) any {
	t.Helper()
	reply, err := s.roundTrip(args, timeout)
	if err != nil {
		t.Fatalf("%s: %s: %v", s.Addr(), strings.Join(args, " "), err)
	}
	return reply
}

// Kill ends the server with SIGKILL and returns when it has ended.
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

// Restart kills the server if it runs, starts it again with the same port, arguments and directory, and returns when it serves commands.
// It is empty unless a replica or extra arguments saved its data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill()
	s.checkStarted(t, onSamePort(s.run))
}

// Pause stops the server with SIGSTOP. The kernel keeps its connections and accepts new ones, but the server does not respond.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.program.Pause()
	s.paused = true
}

// Resume ends a Pause. The server then processes what was sent to it during the Pause.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.program.Resume()
	s.paused = false
}

// PID returns the process id, or that of the last process if the server is down.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.program.PID()
}

// alive reports whether the server runs and is not paused.
func (s *Server) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.paused && s.program.running()
}

// CPU returns the user and system time used by all threads of the process so far.
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

// UsedMemory returns the server's allocated memory in bytes.
func (s *Server) UsedMemory(t testing.TB) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s.Info(t, "memory")["used_memory"], 10, 64)
	if err != nil {
		t.Fatalf("%s: INFO used_memory: %v", s.Addr(), err)
	}
	return n
}

// Info returns the fields of a section of INFO. An error ends the test.
func (s *Server) Info(t testing.TB, section string) map[string]string {
	t.Helper()
	return fields(s.Must(t, "INFO", section))
}

// info returns the fields of a section of INFO.
func (s *Server) info(section string) (map[string]string, error) {
	reply, err := s.Do("INFO", section)
	if err != nil {
		return nil, err
	}
	return fields(reply), nil
}

func (s *Server) confPath() string { return filepath.Join(s.dir, "server.conf") }
