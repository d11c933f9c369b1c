package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
	"github.com/headgate/headgate/internal/console"
	"github.com/headgate/headgate/internal/testenv"
)

const (
	startPage    = "../../docs/getting-started.md"
	startPicture = "../../docs/getting-started/session.svg"
)

// TestGettingStarted follows docs/getting-started.md from top to bottom with a real Redis: it writes the files, starts the server, runs
// every command, and compares what each prints. With -update it writes the outputs and the picture of the session.
func TestGettingStarted(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(startPage)
	if err != nil {
		t.Fatal(err)
	}
	page, dir, sh := string(data), t.TempDir(), newShell(t)
	replace := []string{"redis://127.0.0.1:6379", "redis://" + testenv.Start(t, testenv.Redis).Addr()}
	var session strings.Builder
	for _, block := range fenced.FindAllStringSubmatch(page, -1) {
		kind, text := block[1], block[2]
		local := strings.NewReplacer(replace...).Replace(text)
		switch {
		case kind == "yaml":
			title, body := titled(local)
			name, appended := strings.CutSuffix(title, ", appended")
			file := filepath.Join(dir, name)
			if appended {
				session.WriteString("$ cat >> " + name + "\n" + body)
				before, err := os.ReadFile(file)
				testenv.NoError(t, err)
				body = string(before) + body
			}
			writeFile(t, file, body)
		case kind == "sh" && strings.Contains(text, "headgate serve --config config.yaml &\n"):
			config, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
			testenv.NoError(t, err)
			writeFile(t, filepath.Join(dir, "config.yaml"), anyPorts+string(config))
			replace = append(replace, "127.0.0.1:8080", serve(t, "--config", filepath.Join(dir, "config.yaml")).addressOf("http"))
		case kind == "console":
			got := follow(t, sh, dir, text, replace)
			if *update {
				page = strings.Replace(page, text, got, 1)
			}
			if strings.Contains(text, "curl") || strings.Contains(text, "explain") {
				session.WriteString(got)
			}
		case strings.HasPrefix(text, "go install "): // make quickstart does that
		default:
			t.Errorf("a block that this test does not know: %s", text)
		}
	}
	if drawn := console.Draw(session.String()); *update {
		testenv.NoError(t, os.WriteFile(startPage, []byte(page), 0o600))
		testenv.NoError(t, os.WriteFile(startPicture, []byte(drawn), 0o600))
	} else if old, err := os.ReadFile(startPicture); err != nil || !console.Same(string(old), drawn) {
		t.Errorf("%s is not the picture of this session; -update draws it: %v", startPicture, err)
	}
}

// follow runs the commands of a console block and returns the block with what they printed. Without -update that must be what the block
// shows.
func follow(t *testing.T, sh *shell, dir, text string, replace []string) string {
	t.Helper()
	back := slices.Clone(replace)
	for i := 0; i+1 < len(back); i += 2 {
		back[i], back[i+1] = back[i+1], back[i]
	}
	printed, differences := console.Follow(text, 3*time.Second, func(command string) string {
		out, _ := sh.run("cd " + shellwords.Quote(dir) + "\n" + strings.NewReplacer(replace...).Replace(command))
		return strings.NewReplacer(back...).Replace(out)
	})
	if len(differences) > 0 && !*update {
		t.Error(strings.Join(differences, "\n"))
	}
	return printed
}
