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

// oddNames are of users whom a shell might take for something else.
var oddNames = []string{
	"ann", "ann lee", "o'neil", `the "boss"`, "$HOME", "`id`", "$(id)", "a;b|c&d", "a,b", `back\slash`, `\047`, "*", "~", "-n", "#x", "!x",
	"a=b", "(x)", "<x>", "tab\there", "esc\x1b[2J", "é ü", "100%", "%s", "sha256:x",
}

// shell runs commands as they are printed, with the program that users run.
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

// suggestion is the command after this text, to the end of its line.
func suggestion(t *testing.T, after, text string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)` + after + `(headgate .*)$`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("nothing is suggested after %q:\n%s", after, text)
	}
	return found[1]
}

// TestSuggestedCommands runs what top and denials suggest, as it is printed, for subjects that are odd to a shell.
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
		r.says("Redis answers")
		args := []string{"--server", "http://" + r.at("admin"), "--token-file", tokenFile}
		for i, name := range oddNames {
			user, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			r.asks(i+3, fmt.Sprintf(`"user": %s, "method": %q, "path": "/it's $here"`, user, []string{"GET", "PURGE"}[i%2]))
			top := start(t, append([]string{"top", "--count", "1"}, args...)...)
			why, code := sh.run(suggestion(t, "^why: ", top.out))
			if denied := fmt.Sprintf("%d denials of ", i+2); code != 1 || !strings.HasPrefix(why, denied) {
				t.Errorf("%q, %s: %s\nexit %d: %s", name, show, top.out, code, why)
				continue
			}
			if show == "hash" {
				continue // who it is is not known, and so not what to ask
			}
			now := suggestion(t, "note: how it is now: ", why)
			said, code := sh.run(now + " --output json")
			var e explainReport
			if err := json.Unmarshal([]byte(said), &e); err != nil || code != 1 || e.Allowed || e.Request["user"] != name ||
				e.Request["method"] != []string{"GET", "PURGE"}[i%2] || e.Limits[0].Remaining != 0 {
				t.Errorf("%q: %s\nexit %d: %s", name, now, code, said)
			}
		}
		// Of what the server keeps to itself nothing stands for it that would have to be filled in.
		known := start(t, append([]string{"denials", "user=o'neil"}, args...)...)
		if said, code := sh.run(suggestion(t, "note: how it is now.*: ", known.out)); code != 1 {
			t.Errorf("%s: exit %d: %s", show, code, said)
		}
		r.stop()
		<-r.done
	}
}

// TestDevShowsSubjects tries it without a config of any kind: names are shown.
func TestDevShowsSubjects(t *testing.T) {
	t.Parallel()
	sh := newShell(t)
	_, file := configure(t, "", watchedRules)
	r := serve(t, "--dev", "--config", file)
	r.asks(9, annSearches)
	r.asks(8, bobSearches)
	top := start(t, "top", "--server", "http://"+r.at("admin"))
	if !strings.Contains(top.out, "  user=ann\n") || strings.Contains(top.out, "hashes") {
		t.Error(top.out)
	}
	if why, code := sh.run(suggestion(t, "^why: ", top.out)); code != 1 || !strings.HasPrefix(why, "5 denials of user=ann") {
		t.Errorf("exit %d: %s", code, why)
	}
	if near, code := sh.run(suggestion(t, "near a limit: ", top.out)); code != 0 || !strings.Contains(near, "user=bob\n") {
		t.Errorf("exit %d: %s", code, near)
	}
}
