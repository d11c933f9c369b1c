package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// Standby starts a second server that replicates p asynchronously and serves reads. A write that p confirmed may be lost with p.
func (p *Postgres) Standby(t testing.TB) *Postgres {
	t.Helper()
	standby := newPostgres(t)
	standby.copy(t, p, standby.data(), "--write-recovery-conf")
	standby.start(t)
	return standby
}

// Promote makes a standby a primary and returns when it accepts writes. Its former primary is not notified, so there may be two
// primaries.
func (p *Postgres) Promote(t testing.TB) {
	t.Helper()
	p.must(t, "pg_ctl", "promote", "--pgdata", p.data())
}

// Save saves a copy of the current data for Load. The server keeps running.
func (p *Postgres) Save(t testing.TB) {
	t.Helper()
	NoError(t, os.RemoveAll(p.saved()))
	p.copy(t, p, p.saved())
}

// Load kills the server and starts it with the data of the last Save, as an operator would restore a backup. Each Save can be loaded
// only once.
func (p *Postgres) Load(t testing.TB) {
	t.Helper()
	p.Kill()
	NoError(t, os.RemoveAll(p.data()))
	NoError(t, os.Rename(p.saved(), p.data()))
	p.Restart(t)
}

func (p *Postgres) saved() string { return filepath.Join(p.dir, "saved") }

// copy writes another server's data to a directory that p may write.
func (p *Postgres) copy(t testing.TB, from *Postgres, to string, more ...string) {
	t.Helper()
	args := append([]string{"--dbname", from.URL(), "--pgdata", to, "--checkpoint", "fast", "--no-sync"}, more...)
	p.must(t, "pg_basebackup", args...)
}
