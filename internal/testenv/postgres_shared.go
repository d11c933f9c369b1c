package testenv

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
)

// SharedPostgres is a PostgreSQL server shared by the tests of a package, each of which gets its own database. It starts with the
// first test; TestMain calls Run, which ends it. Tests that kill or pause a server need their own.
type SharedPostgres struct {
	// Prepare initializes the template database of all others. It must close its connections.
	Prepare func(t testing.TB, first *Postgres)

	mu     sync.Mutex
	server *Postgres
	tb     *packageTB
	made   int
}

// template is the name of the template database.
const template = "first"

// Run runs the tests of a package, ends the server and returns the exit code.
func (s *SharedPostgres) Run(m *testing.M) int {
	code := m.Run()
	if s.tb != nil {
		for _, end := range s.tb.ends {
			end()
		}
	}
	return code
}

// Database returns a new database. Only its URL may be used.
func (s *SharedPostgres) Database(t testing.TB) *Postgres {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		s.tb = &packageTB{TB: t}
		server := StartPostgres(s.tb)
		s.Prepare(t, server.newDatabase(t, template, "template1"))
		s.server = server
	}
	s.made++
	return s.server.newDatabase(t, "test"+strconv.Itoa(s.made), template)
}

// newDatabase creates a copy of a database that has no connections.
func (p *Postgres) newDatabase(t testing.TB, name, from string) *Postgres {
	t.Helper()
	p.must(t, "createdb", "--host", "127.0.0.1", "--port", strconv.Itoa(p.port), "--username", "postgres", "--template", from, name)
	return &Postgres{bin: p.bin, dir: p.dir, port: p.port, database: name}
}

// packageTB is the testing.TB of a test, but its cleanup runs at the end of the package.
type packageTB struct {
	testing.TB
	ends []func()
}

func (p *packageTB) Cleanup(f func()) { p.ends = append(p.ends, f) }

// Failed returns false, because the server's log does not belong to one test.
func (*packageTB) Failed() bool { return false }

// Error writes to stderr, because the test may have ended.
func (*packageTB) Error(args ...any) { fmt.Fprintln(os.Stderr, args...) }
