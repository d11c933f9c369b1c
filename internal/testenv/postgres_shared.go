package testenv

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
)

// SharedPostgres is one PostgreSQL server for the tests of a package, which get a
// database each. It starts with the first of them; TestMain ends it by Run. Tests
// that kill or pause a server need one of their own.
type SharedPostgres struct {
	// Prepare fills the database that all others are copies of. It must leave no connection open.
	Prepare func(t testing.TB, first *Postgres)

	mu     sync.Mutex
	server *Postgres
	tb     *packageTB
	made   int
}

// template is the database that all others are copies of.
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

// Database returns a new database. Nothing but its URL may be used.
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

// newDatabase makes a copy of a database to which nobody is connected.
func (p *Postgres) newDatabase(t testing.TB, name, from string) *Postgres {
	t.Helper()
	p.must(t, "createdb", "--host", "127.0.0.1", "--port", strconv.Itoa(p.port), "--username", "postgres", "--template", from, name)
	return &Postgres{bin: p.bin, dir: p.dir, port: p.port, database: name}
}

// packageTB is of a test, and what it cleans up lives on with the package.
type packageTB struct {
	testing.TB
	ends []func()
}

func (p *packageTB) Cleanup(f func()) { p.ends = append(p.ends, f) }

// Failed is false: what the server has logged is not about one test.
func (*packageTB) Failed() bool { return false }

// Error may come when the test is over.
func (*packageTB) Error(args ...any) { fmt.Fprintln(os.Stderr, args...) }
