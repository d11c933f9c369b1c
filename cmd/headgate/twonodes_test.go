package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
	"github.com/headgate/headgate/internal/testenv"
)

// TestTwoNodes follows docs/two-nodes.md with a real Redis. Only addresses differ, and the deadline of Redis, because the test counts.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/two-nodes.md")
	testenv.NoError(t, err)
	dir, sh := t.TempDir(), newShell(t)
	redis := "{address: \"redis://" + testenv.Start(t, testenv.Redis).Addr() + "\", deadline: 1s}"
	var replace []string
	for _, block := range fenced.FindAllStringSubmatch(string(page), -1) {
		switch kind, text := block[1], block[2]; {
		case strings.HasPrefix(text, "go install "): // "make quickstart" does that
		case kind == "yaml":
			title, body := titled(text)
			writeFile(t, filepath.Join(dir, title), body)
		case kind == "sh" && strings.Contains(text, "headgate serve "):
			for port, name := range map[string]string{"8080": "node-1.yaml", "9080": "node-2.yaml"} {
				if !strings.Contains(text, "headgate serve --config "+name+" &\n") {
					t.Fatalf("the page does not start %s:\n%s", name, text)
				}
				config, err := os.ReadFile(filepath.Join(dir, name))
				testenv.NoError(t, err)
				local := replaceAll(t, string(config), map[string]string{`{address: "redis://127.0.0.1:6379"}`: redis})
				if strings.HasPrefix(local, "listen: {") {
					_, local, _ = strings.Cut(local, "\n")
				}
				writeFile(t, filepath.Join(dir, name), anyPorts+local)
				node := serve(t, "--config", filepath.Join(dir, name))
				node.waitForLog(redisConnected)
				replace = append(replace, "127.0.0.1:"+port, node.addressOf("http"))
			}
		case kind == "sh":
			if out, code := sh.run("set -e; cd " + shellwords.Quote(dir) + "\n" + text); code != 0 {
				t.Fatalf("%s\nexit %d: %s", text, code, out)
			}
		case kind == "console":
			follow(t, sh, dir, text, replace)
		default:
			t.Errorf("a block that this test does not know: %s", text)
		}
	}
	if len(replace) == 0 {
		t.Error("the page starts no nodes")
	}
}
