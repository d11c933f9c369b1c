package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/examples"
	"github.com/headgate/headgate/internal/testenv"
)

// TestInit writes the files of each kind, validates them, and starts the server with them. Package internal/e2e starts the gateways.
func TestInit(t *testing.T) {
	t.Parallel()
	redis := testenv.Start(t, testenv.Redis)
	for i := range starters {
		s := &starters[i]
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "new")
			r := startJSON[initReport](t, 0, "init", s.name, "--dir", dir)
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != len(s.files) || len(r.Files) != len(s.files) || len(r.Next) < 2 {
				t.Fatalf("%+v, %v, %v", r, entries, err)
			}
			next, usesConfig := strings.Join(r.Next, "\n"), s.name != "library"
			if strings.Contains(next, "redis-server #") != usesConfig || strings.Contains(next, "http.server 9000") != (usesConfig && s.name != "service") {
				t.Errorf("%+v", r.Next)
			}
			for _, command := range r.Next {
				if words, ok := strings.CutPrefix(command, "headgate "); ok {
					if err := checkCommandLine(strings.Fields(words), true); err != nil {
						t.Errorf("%s: %v", command, err)
					}
				}
			}
			o := start(t, "rules", "validate", filepath.Join(dir, "rules.yaml"))
			if o.code != 0 || strings.Contains(o.out, "warning") {
				t.Errorf("%+v", o)
			}
			if s.name == "library" {
				return // examples/library has its test
			}
			config := filepath.Join(dir, "config.yaml")
			if o = start(t, "config", "validate", config); o.code != 0 || o.out != "ok\n" {
				t.Errorf("%+v", o)
			}
			text, err := os.ReadFile(config)
			if err != nil {
				t.Fatal(err)
			}
			free := strings.NewReplacer("127.0.0.1:6379", redis.Addr(), ":8080 ", ":0 ", ":8081 ", ":0 ", ":8082 ", ":0 ").Replace(string(text))
			writeFile(t, config, strings.Replace(free, "redis:\n", "redis:\n  namespace: "+s.name+"\n  deadline: 1s\n", 1))
			for _, f := range startJSON[doctorReport](t, 0, "doctor", "--config", config).Findings {
				if f.Section != "redis" && f.Section != "host" && f.Status != "ok" {
					t.Errorf("%+v", f)
				}
			}
			server := serve(t, "--config", config)
			server.waitForLog(redisConnected)
			for range 10 {
				if a := server.check(`"ip": "192.0.2.1", "method": "GET", "path": "/"`); !a.Allowed {
					t.Errorf("%+v", a)
				}
			}
			if a := server.check(`"ip": "192.0.2.1", "method": "GET", "path": "/"`); a.Allowed {
				t.Errorf("%+v", a)
			}
		})
	}
}

// TestInitKeepsFiles checks that nothing is written if one of the files exists.
func TestInitKeepsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := filepath.Join(dir, "rules.yaml")
	writeFile(t, mine, "mine")
	r := startJSON[initReport](t, 1, "init", "envoy", "--dir", dir)
	if r.OK || len(r.Existing) != 1 || r.Existing[0] != mine {
		t.Errorf("%+v", r)
	}
	entries, err := os.ReadDir(dir)
	if text, _ := os.ReadFile(mine); err != nil || len(entries) != 1 || string(text) != "mine" {
		t.Errorf("%v, %v, %s", entries, err, text)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "envoy.yaml")); err != nil {
		t.Fatal(err)
	}
	if o := start(t, "init", "envoy", "--dir", dir); o.code != 1 || !strings.Contains(o.out, "envoy.yaml exists: nothing was written") {
		t.Errorf("%+v", o)
	}
	if err := writeNew(filepath.Join(dir, "envoy.yaml"), nil); err == nil {
		t.Error("a file appeared between the check and the write, and was overwritten")
	}
}

// TestInitIsExamples checks that the written files are those of the examples.
func TestInitIsExamples(t *testing.T) {
	t.Parallel()
	for _, s := range starters {
		for _, f := range s.files {
			embedded, err := examples.Files.ReadFile(f[1])
			if err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(filepath.Join("..", "..", "examples", f[1])); err != nil || !bytes.Equal(text, embedded) {
				t.Errorf("%s: %v", f[1], err)
			}
		}
	}
}
