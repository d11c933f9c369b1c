package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func connect(t *testing.T, p *Postgres) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func mustExec(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// texts returns the only column of a query, joined in one line.
func texts(t *testing.T, conn *pgx.Conn, query string) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return strings.Join(list, " ")
}

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return fmt.Sprint(err)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	conn := connect(t, p)
	const listens = "SELECT current_setting('listen_addresses') || current_setting('unix_socket_directories')"
	if got := texts(t, conn, listens); got != "127.0.0.1" {
		t.Errorf("listen_addresses is %q", got)
	}
	mustExec(t, conn, "CREATE TABLE rows (name text)", "INSERT INTO rows VALUES ('a')")
	before, segment := p.processes(), strings.Fields(p.status()[6])[1]
	if len(before) < 5 {
		t.Errorf("few processes: %v", before)
	}

	p.Kill()
	for _, pid := range before {
		if state := processState(pid); state != "Z" {
			t.Errorf("process %d survives Kill: %s", pid, state)
		}
	}
	if out, err := exec.Command("ipcs", "-m").Output(); err != nil || strings.Contains(string(out), " "+segment+" ") {
		t.Errorf("shared memory survives Kill: %v\n%s", err, out)
	}
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil || errors.As(err, new(*pgconn.PgError)) {
		t.Errorf("a killed server responds: %v", err)
	}
	if _, err := pgx.Connect(t.Context(), p.URL()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a killed server accepts connections: %v", err)
	}
	p.Kill() // a second time, without effect

	url := p.URL()
	p.Restart(t)
	if got := texts(t, connect(t, p), "SELECT name FROM rows"); got != "a" || p.URL() != url {
		t.Errorf("after a restart at %s, was %s: rows %q", p.URL(), url, got)
	}
}

// processes returns the process ids of the server.
func (p *Postgres) processes() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := append(p.halt(), p.server.PID())
	p.server.Resume()
	return all
}

func TestPostgresPause(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	conn := connect(t, p)
	p.Pause()
	result := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("a paused server responds: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	p.Resume()
	if err := <-result; err != nil {
		t.Errorf("after Resume: %v", err)
	}
	connect(t, p)
	p.Pause()
	p.Restart(t)
	p.Pause() // the cleanup must end a paused server
}

func TestPostgresStandby(t *testing.T) {
	t.Parallel()
	primary := StartPostgres(t)
	mustExec(t, connect(t, primary), "CREATE TABLE rows (name text)")
	standby := primary.Standby(t)
	mustExec(t, connect(t, primary), "INSERT INTO rows VALUES ('a')")
	follower := connect(t, standby)
	wait(t, "replication", func() error {
		if got := texts(t, follower, "SELECT name FROM rows"); got != "a" {
			return fmt.Errorf("rows %q", got)
		}
		return nil
	})
	if _, err := follower.Exec(t.Context(), "INSERT INTO rows VALUES ('b')"); sqlState(err) != "25006" {
		t.Errorf("write to a standby: %v", err)
	}

	primary.Kill()
	standby.Promote(t)
	mustExec(t, follower, "INSERT INTO rows VALUES ('b')")
	standby.Restart(t)
	mustExec(t, connect(t, standby), "INSERT INTO rows VALUES ('c')")
	primary.Restart(t) // without knowing of the promotion
	if got := texts(t, connect(t, primary), "SELECT name FROM rows"); got != "a" {
		t.Errorf("the old primary returns with %q", got)
	}
}

func TestPostgresLoad(t *testing.T) {
	t.Parallel()
	p := StartPostgres(t)
	conn := connect(t, p)
	mustExec(t, conn, "CREATE TABLE rows (name text)")
	p.Save(t)
	mustExec(t, conn, "INSERT INTO rows VALUES ('a')")
	p.Save(t)
	mustExec(t, conn, "INSERT INTO rows VALUES ('b')")
	p.Load(t)
	conn = connect(t, p)
	if got := texts(t, conn, "SELECT name FROM rows"); got != "a" {
		t.Errorf("rows %q, want those before the last Save", got)
	}
	mustExec(t, conn, "INSERT INTO rows VALUES ('c')")
}

func TestPostgresFull(t *testing.T) {
	t.Parallel()
	p := StartSmallPostgres(t)
	conn := connect(t, p)
	const page = "INSERT INTO rows SELECT string_agg(gen_random_uuid()::text, '') FROM generate_series(1, 1000)"
	mustExec(t, conn, "CREATE TABLE rows (name text)", page)
	p.Fill(t)
	for range 100 {
		if _, err := conn.Exec(t.Context(), page); sqlState(err) != "53100" {
			t.Fatalf("write to a full disk: %v", err)
		}
	}
	if got := texts(t, connect(t, p), "SELECT count(*)::text FROM rows"); got != "1" {
		t.Errorf("%s rows on the full disk", got)
	}
	p.Free(t)
	mustExec(t, conn, page)
}

const postgresOrphanEnv = "TESTENV_POSTGRES_ORPHAN"

// TestPostgresParentKilled tests that no process of the server survives the test program, even if that is killed. It runs this test
// program again.
func TestPostgresParentKilled(t *testing.T) {
	Long(t)
	if os.Getenv(postgresOrphanEnv) != "" {
		p := StartPostgres(t)
		pids := strings.Trim(fmt.Sprint(p.processes()), "[]")
		if err := os.WriteFile(os.Getenv(postgresOrphanEnv), []byte(p.dir+" "+pids), 0o600); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	t.Parallel()
	postgresPrograms(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "output")
	cmd := exec.Command(self, "-test.run=^TestPostgresParentKilled$")
	cmd.Env = append(os.Environ(), postgresOrphanEnv+"="+output)
	parent, err := spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(parent.Kill)
	var fields []string
	wait(t, "start of the server", func() error {
		text, err := os.ReadFile(output)
		fields = strings.Fields(string(text))
		if err == nil && len(fields) < 5 {
			err = fmt.Errorf("output only %q", text)
		}
		return err
	})
	left := Postgres{dir: fields[0]}
	t.Cleanup(func() {
		left.sweep()
		if err := os.RemoveAll(left.dir); err != nil {
			t.Error(err)
		}
	})
	parent.Kill()
	wait(t, "end of the server", func() error {
		for _, pid := range fields[1:] {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			if processState(n) != "Z" {
				return fmt.Errorf("process %d still exists", n)
			}
		}
		return nil
	})
}
