package attack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

// marker is the secret that must not appear anywhere.
const marker = "hunter2"

// spellings are valid and invalid addresses that contain the marker, by config key. Nothing listens there.
var spellings = map[string][]string{
	"postgres": {
		"postgres://hg:hunter2@127.0.0.1:1/db", "postgres://127.0.0.1:1/db?user=hg&password=hunter2", "postgres://127.0.0.1:1/db?password=hunter2&sslmode=disable",
		"postgres://hg@127.0.0.1:1/db?sslpassword=hunter2", "postgres://127.0.0.1:1,127.0.0.1:2/db?password=hunter2", "postgresql://127.0.0.1:1?password=hunter2",
		"postgres://hg:h%75nter2hunter2@127.0.0.1:1/db", "postgres://127.0.0.1:1/db?pass%77ord=hunter2", "postgres://127.0.0.1:1/db?password=%27hunter2%27",
		"postgres://127.0.0.1:1/db?password='hunter2'", "postgres://127.0.0.1:1/db?password=hunter2&sslmode=nonsense", "postgres://127.0.0.1:1/db?password=hunter2&port=x",
		"postgres://127.0.0.1:1/db?options=-cpassword%3Dhunter2", "postgres://hg:pa/hunter2@127.0.0.1:1/db", "postgres://hg:pa?hunter2@127.0.0.1:1/db", "postgres://hg:hunter2@[",
		"host=127.0.0.1 port=1 user=hg password=hunter2", "host=127.0.0.1 port=1 password='hunter2'", "mysql://hg:hunter2@127.0.0.1/db", "mysql://127.0.0.1/db?password=hunter2",
		"//hg:hunter2@127.0.0.1:1/db", "hg:hunter2@127.0.0.1:1/db",
	},
	"redis": {
		"redis://:hunter2@127.0.0.1:1", "redis://hg:hunter2@127.0.0.1:1/3", "redis://hunter2@127.0.0.1:1", "redis://127.0.0.1:1?password=hunter2", "redis://127.0.0.1:1/0?password=hunter2",
		"sentinel://:hunter2@127.0.0.1:1,127.0.0.1:2/main", "sentinel://127.0.0.1:1/main?password=hunter2", "cluster://hg:hunter2@127.0.0.1:1,127.0.0.1:2", "cluster://127.0.0.1:1#hunter2",
		"redis://hg:hunter2", "redis://hg:pa/hunter2@127.0.0.1:1", "tcp://hg:hunter2@127.0.0.1:1", "hg:hunter2@127.0.0.1:1", "redis://:hunter2@",
	},
	"key_url": {
		"https://hg:hunter2@127.0.0.1:1/keys", "https://127.0.0.1:1/keys?token=hunter2", "https://127.0.0.1:1/keys#hunter2", "http://127.0.0.1:1/keys?api_key=hunter2",
		"http://hunter2@192.0.2.1/keys", "http://192.0.2.1/keys?token=hunter2", "ftp://127.0.0.1/keys?token=hunter2", "127.0.0.1/keys?token=hunter2",
	},
	"tracing": {
		"https://hg:hunter2@127.0.0.1:1", "https://127.0.0.1:1/v1?token=hunter2", "https://127.0.0.1:1#hunter2", "127.0.0.1:1?token=hunter2",
	},
}

// configWith writes a config with an address at the key of its kind, in flow or block style.
func configWith(t *testing.T, kind, address string, flow bool) string {
	t.Helper()
	dir := t.TempDir()
	quoted := "'" + strings.ReplaceAll(address, "'", "''") + "'"
	line := map[string]string{
		"postgres": "postgres: {address: %s}\n",
		"redis":    "rules: rules.yaml\nredis: {address: %s}\n",
		"key_url":  "rules: rules.yaml\nidentity: {jwt: {algorithms: [RS256], key_url: %s}}\n",
		"tracing":  "rules: rules.yaml\ntracing: {address: %s}\n",
	}[kind]
	if !flow {
		line = strings.NewReplacer("{jwt: {algorithms: [RS256], ", "\n  jwt:\n    algorithms: [RS256]\n    ", "{", "\n  ", "}", "").Replace(line)
	}
	text := "listen: {http: '127.0.0.1:0', grpc: off, ops: '127.0.0.1:0', admin: off}\n" + fmt.Sprintf(line, quoted)
	for name, data := range map[string]string{"config.yaml": text, "rules.yaml": "rules: [{id: a, by: [ip], limit: 1/s}]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "config.yaml")
}

// loaded returns all texts about a config, and about the PostgreSQL that it names.
func loaded(t *testing.T, file string) (texts []string) {
	t.Helper()
	c, err := config.Load(file)
	if err != nil {
		return []string{err.Error()}
	}
	for _, s := range c.Settings() {
		texts = append(texts, fmt.Sprint(s))
	}
	if c.Postgres.Address == "" {
		return texts
	}
	db, err := pgrules.Open(c.Postgres.Address, "")
	if err != nil {
		return append(texts, err.Error())
	}
	defer db.Close()
	_, _, _, err = db.CurrentState(t.Context())
	return append(texts, db.Address(), fmt.Sprint(err))
}

// TestAddressSecretsAreHidden: however an address with a secret is spelled, no command shows the secret: not when it prints the
// config, nor in errors about it, nor when the address is unreachable.
func TestAddressSecretsAreHidden(t *testing.T) {
	program := headgateProgram(t)
	attempts := 0
	for kind, addresses := range spellings {
		for i, address := range addresses {
			file := configWith(t, kind, address, i%2 == 0)
			for _, text := range loaded(t, file) {
				if strings.Contains(text, marker) {
					t.Errorf("%s\n%s", address, text)
				}
			}
			if !long() && i%5 > 1 {
				continue // the code shared by all commands was just tested
			}
			commands := [][]string{{"config", "show", file}, {"config", "validate", "--json", file}}
			if kind == "postgres" {
				commands = append(commands, []string{"serve", "--config", file}, []string{"migrate", "--config", file})
			}
			for _, args := range commands {
				attempts++
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				out, _ := exec.CommandContext(ctx, program, args...).CombinedOutput() // it may fail
				cancel()
				if text := string(out); strings.Contains(text, marker) || text == "" {
					t.Errorf("%s with %s\n%s", strings.Join(args[:2], " "), address, text)
				}
			}
		}
	}
	t.Logf("%d commands", attempts)
}

// TestServerHidesSecrets: a server whose addresses contain secrets does not show them in its log or on the ops listener, which
// requires no token: neither in normal operation nor when the addresses are unreachable.
func TestServerHidesSecrets(t *testing.T) {
	postgres := testenv.StartPostgres(t)
	address := strings.Replace(postgres.URL(), "?", "?password=hunter2&sslpassword=hunter2&", 1)
	db, err := pgrules.Open(address, "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	(&controlPlane{t: t, postgres: postgres}).publish(`{"id": "a", "by": ["ip"], "limit": "1/s"}`)
	dead := testenv.FreeAddress(t)
	node := fleet.New(t, headgateProgram(t), fmt.Sprintf("redis: {address: 'redis://hg:hunter2@%s'}\npostgres: {address: %q}\n"+
		"identity: {jwt: {algorithms: [RS256], key_url: 'http://hunter2:hunter2@%s/keys?token=hunter2'}}\ntracing: {address: 'http://%s'}\n",
		dead, address, dead, dead), nil)
	node.Start()
	look := func(when string) (readyz string) {
		t.Helper()
		for _, path := range []string{"/readyz", "/healthz", "/metrics"} {
			text, err := node.Fetch(t.Context(), http.MethodGet, node.Ops, path, "")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), marker) {
				t.Errorf("%s: %s\n%s", when, path, text)
			}
			if path == "/readyz" {
				readyz = string(text)
			}
		}
		if _, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/check", `{"attributes": {"ip": "192.0.2.1"}}`); err != nil && strings.Contains(err.Error(), marker) {
			t.Errorf("%s: /v1/check: %v", when, err)
		}
		if log := node.Output(); strings.Contains(log, marker) {
			t.Errorf("%s: log\n%s", when, log)
		}
		return readyz
	}
	look("with PostgreSQL")
	postgres.Kill()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(look("without PostgreSQL"), "PostgreSQL at"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("/readyz does not report that PostgreSQL is unavailable")
		}
	}
	if log := node.Output(); !strings.Contains(log, "JWT keys cannot be read") {
		t.Errorf("the log does not report unreadable keys:\n%s", log)
	}
	t.Log(look("in the end"))
}
