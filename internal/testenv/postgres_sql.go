package testenv

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// variable matches the lines that differ between runs and versions of pg_dump.
var variable = regexp.MustCompile(`(?m)^(--.*|\\(un)?restrict .*)?\n`)

// Dump returns the tables and rows of the database as SQL statements.
func (p *Postgres) Dump(t testing.TB) string {
	t.Helper()
	file := filepath.Join(p.dir, "dump.sql")
	p.must(t, "pg_dump", "--dbname", p.URL(), "--inserts", "--no-owner", "--file", file)
	sql, err := os.ReadFile(file)
	NoError(t, err)
	return variable.ReplaceAllString(string(sql), "")
}

// Execute executes SQL statements, such as those of Dump in an empty database.
func (p *Postgres) Execute(t testing.TB, sql string) {
	t.Helper()
	file := filepath.Join(p.dir, "execute.sql")
	NoError(t, os.WriteFile(file, []byte(sql), 0o644))
	p.must(t, "psql", "--dbname", p.URL(), "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", file)
}
