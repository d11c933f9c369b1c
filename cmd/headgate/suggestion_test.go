package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// shellNames are user names that contain shell syntax.
var shellNames = []string{
	"ann", "ann lee", "o'neil", `the "boss"`, "$HOME", "`id`", "$(id)", "a;b|c&d", "a,b", `back\slash`, `\047`, "*", "~", "-n", "#x", "!x",
	"a=b", "(x)", "<x>", "tab\there", "esc\x1b[2J", "é ü", "100%", "%s", "sha256:x",
}

// shell runs printed commands in sh, with the real binary in PATH.
type shell struct {
	t    *testing.T
	path string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	return &shell{t, filepath.Dir(testenv.BuildHeadgate(t))}
}

func (s *shell) run(command string) (out string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = s.t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+s.path+":"+os.Getenv("PATH"))
	text, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// suggestion returns the command that follows the pattern, up to the end of the line.
func suggestion(t *testing.T, after, text string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)` + after + `(headgate .*)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no command follows %q:\n%s", after, text)
	}
	return found[1]
}

// TestSuggestedCommands runs the commands that top and denials print, for subjects that contain shell syntax.
func TestSuggestedCommands(t *testing.T) {
	t.Parallel()
	sh := newShell(t)
	token := startJSON[tokenReport](t, 0, "token", "create", "ann")
	dir := filepath.Join(t.TempDir(), "it's a $dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	tokenFile := filepath.Join(dir, "token")
	writeFile(t, tokenFile, token.Token)
	for _, show := range []string{"clear", "hash"} {
		_, file := configure(t, fmt.Sprintf("redis: {address: redis://%s, deadline: 1s}\nadmin: {tokens_file: %q}\nshow_subjects: %s\n",
			testenv.Start(t, testenv.Redis).Addr(), secretFile(t, token.Line), show),
			"rules: [{id: all, by: [user], limit: 1/hour, algorithm: fixed_window}]\n")
		r := serve(t, "--config", file)
		r.waitForLog(redisConnected)
		args := []string{"--server", "http://" + r.addressOf("admin"), "--token-file", tokenFile}
		for i, name := range shellNames {
			user, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			r.sendChecks(i+3, fmt.Sprintf(`"user": %s, "method": %q, "path": "/it's $here"`, user, []string{"GET", "PURGE"}[i%2]))
			top := start(t, append([]string{"top", "--count", "1"}, args...)...)
			why, code := sh.run(suggestion(t, "^to see why: ", top.out))
			if denied := fmt.Sprintf("%d denials of ", i+2); code != 1 || !strings.HasPrefix(why, denied) {
				t.Errorf("%q, %s: %s\nexit %d: %s", name, show, top.out, code, why)
				continue
			}
			if show == "hash" {
				continue // the client is unknown, so no command is suggested
			}
			now := suggestion(t, "note: current state: ", why)
			output, code := sh.run(now + " --output json")
			var e explainReport
			if err := json.Unmarshal([]byte(output), &e); err != nil || code != 1 || e.Allowed || e.Request["user"] != name ||
				e.Request["method"] != []string{"GET", "PURGE"}[i%2] || e.Limits[0].Remaining != 0 {
				t.Errorf("%q: %s\nexit %d: %s", name, now, code, output)
			}
		}
		// Values that the server hides are omitted, so the command runs without changes.
		known := start(t, append([]string{"denials", "user=o'neil"}, args...)...)
		if output, code := sh.run(suggestion(t, "note: current state.*: ", known.out)); code != 1 {
			t.Errorf("%s: exit %d: %s", show, code, output)
		}
		r.stop()
		<-r.done
	}
}

// TestDevShowsSubjects checks that --dev shows subjects in plain text.
func TestDevShowsSubjects(t *testing.T) {
	t.Parallel()
	sh := newShell(t)
	_, file := configure(t, "", watchedRules)
	r := serve(t, "--dev", "--config", file)
	r.sendChecks(9, annSearches)
	r.sendChecks(8, bobSearches)
	top := start(t, "top", "--server", "http://"+r.addressOf("admin"))
	if !strings.Contains(top.out, "  user=ann\n") || strings.Contains(top.out, "hashed") {
		t.Error(top.out)
	}
	if why, code := sh.run(suggestion(t, "^to see why: ", top.out)); code != 1 || !strings.HasPrefix(why, "5 denials of user=ann") {
		t.Errorf("exit %d: %s", code, why)
	}
	if near, code := sh.run(suggestion(t, "near a limit: ", top.out)); code != 0 || !strings.Contains(near, "user=bob\n") {
		t.Errorf("exit %d: %s", code, near)
	}
}
