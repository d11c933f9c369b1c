package adminapi_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/server/adminapi"
)

func TestNewToken(t *testing.T) {
	t.Parallel()
	shape := regexp.MustCompile(`^hgt_[\w-]{43}$`)
	lineShape := regexp.MustCompile(`^[0-9a-f]{64} ann@example\.com$`)
	first, line, err := adminapi.NewToken("ann@example.com")
	if err != nil || !shape.MatchString(first) || !lineShape.MatchString(line) {
		t.Errorf("%s, %s, %v", first, line, err)
	}
	if second, _, _ := adminapi.NewToken("ann"); first == second {
		t.Error("two tokens are the same")
	}
	for _, name := range []string{"", "-", "a b", "a\nb", "#a", strings.Repeat("a", 65)} {
		if _, _, err := adminapi.NewToken(name); err == nil {
			t.Errorf("%q is accepted as a name", name)
		}
	}
}

// A line without a role is a viewer's, since that was all that a token could do before there were roles.
func TestRights(t *testing.T) {
	t.Parallel()
	for rights, want := range map[string]adminapi.Caller{
		"":                   {Name: "ann", Role: adminapi.Viewer},
		"viewer":             {Name: "ann", Role: adminapi.Viewer},
		"admin":              {Name: "ann", Role: adminapi.Admin},
		"editor tenant=acme": {Name: "ann", Role: adminapi.Editor, Tenant: "acme"},
		"self":               {Name: "ann", Role: adminapi.Self},
		"self user=bob=x":    {Name: "ann", Role: adminapi.Self, Subject: "user=bob=x"},
		"self tenant=acme api_key=sha256:0123456789012345678901": {
			Name: "ann", Role: adminapi.Self, Tenant: "acme", Subject: "api_key=sha256:0123456789012345678901",
		},
		"tenant=tenant=editor": {Name: "ann", Role: adminapi.Viewer, Tenant: "tenant=editor"},
	} {
		token, line, err := adminapi.NewToken("ann", strings.Fields(rights)...)
		if err != nil || !strings.HasSuffix(line, strings.TrimRight(" ann "+rights, " ")) {
			t.Fatal(line, err)
		}
		file := filepath.Join(t.TempDir(), "tokens")
		writeFile(t, file, line)
		if got, err := readTokens(t, file, discard).Caller(t.Context(), token); got != want || err != nil {
			t.Errorf("%s: %+v, %v", line, got, err)
		}
	}
	for _, rights := range [][]string{
		{""},
		{"root"},
		{"editor", ""},
		{"tenant="},
		{"tenant=a b"},
		{"tenant=a\nb"},
		{"editor\n"},
		{"self", "user="},
		{"viewer", "user=ann"},
		{"user=ann"},
		{"self", "api_key=secret"},
		{"self", "user=a", "tenant=b"},
		{"self", "ip=::1"},
	} {
		if _, line, err := adminapi.NewToken("ann", rights...); err == nil {
			t.Errorf("%q gives %s", rights, line)
		}
	}
}

func TestTokensFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	digits := strings.Repeat("0a", 32)
	const (
		noDigits = "the line must begin with the SHA-256 of a token in 64 hexadecimal digits: write the line that " +
			"headgate token create NAME prints"
		noName   = "name missing or invalid: after the digits write a name of letters, digits and . _ @ -"
		noRights = "invalid rights: after the name write a role (caller, self, viewer, editor or admin), tenant=NAME for a token of " +
			"one tenant, user=NAME or api_key=HASH for the role self, and nothing else"
		itself = "the line has the token itself, which every reader of the file could use: write the line that " +
			"headgate token create NAME prints, and use the token printed with it"
	)
	for text, want := range map[string]string{
		"# none\n\n": "",
		"  " + strings.ToUpper(digits) + "\t ann \r\n" + digits + " bob":                             "",
		digits + " ann editor\n" + digits + " ann admin tenant=acme\n" + digits + " ann tenant=acme": "",

		digits + " ann\nhgt_secret ann\n": ":2: " + itself,
		"secret ann":                      ":1: " + noDigits,
		digits[:62] + " ann":              ":1: " + noDigits,
		digits + "00 ann":                 ":1: " + noDigits,
		"\n" + digits:                     ":2: " + noName,
		digits + "  -":                    ":1: " + noName,
		digits + " ann secret":            ":1: " + noRights,
		digits + " ann Editor":            ":1: " + noRights,
		digits + " ann tenant=":           ":1: " + noRights,
		digits + " ann tenant=a editor":   ":1: " + noRights,
		digits + " ann editor viewer":     ":1: " + noRights,
		digits + " ann caller":            "",
		digits + " ann caller tenant=a":   ":1: tenant=: not allowed for the role caller, since services check requests of all tenants: remove it",
		digits + " ann admin tenant=a b":  ":1: " + noRights,
		"secret\n" + digits + "\n":        ":1: " + noDigits + "\n" + file + ":2: " + noName,
	} {
		writeFile(t, file, text)
		_, err := adminapi.ReadTokens(file, discard)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || err.Error() != file+want):
			t.Errorf("%q: %v", text, err)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("the error quotes a possible token: %v", err)
		}
	}
	if _, err := adminapi.ReadTokens(file+"x", discard); err == nil || !strings.Contains(err.Error(), file+"x") {
		t.Error(err)
	}
}

func textLog(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// TestTokensChange checks that a changed file is read within a second, that an invalid file changes nothing, and that each change is
// logged once.
func TestTokensChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file, tokens := writeTokens(t, "ann", "bob")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(text), "\n")
		var log bytes.Buffer
		h := newAPI(t, readTokens(t, file, textLog(&log)), discard)
		expect := func(what string, ann, bob int) {
			t.Helper()
			for range 3 {
				time.Sleep(time.Second)
				for i, want := range []int{ann, bob} {
					if got := serve(h, withToken(post(`{}`), tokens[i])).Code; got != want {
						t.Errorf("%s: %d, want %d", what, got, want)
					}
				}
			}
		}
		expect("initial file", 200, 200)
		writeFile(t, file, lines[2])
		if got := serve(h, withToken(post(`{}`), tokens[1])).Code; got != http.StatusOK {
			t.Error("the file is read more than once a second")
		}
		expect("bob is removed", 200, 401)
		writeFile(t, file, lines[3]+"nonsense\n")
		expect("a bad file", 200, 401)
		writeFile(t, file, lines[2])
		expect("restored file", 200, 401)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		expect("no file", 200, 401)
		writeFile(t, file, lines[3])
		expect("ann is removed", 401, 200)
		writeFile(t, file, "")
		expect("empty file", 401, 401)
		const bad = `level=ERROR msg="token file invalid; the current tokens stay in use" error=`
		want := `level=INFO msg="token file reloaded" file=FILE tokens=1
` + bad + `"FILE:2: the line must begin with the SHA-256 of a token in 64 hexadecimal digits: write the line that ` +
			`headgate token create NAME prints"
level=INFO msg="token file reloaded" file=FILE tokens=1
` + bad + `"read tokens: open FILE: no such file or directory"
level=INFO msg="token file reloaded" file=FILE tokens=1
level=INFO msg="token file reloaded" file=FILE tokens=0
`
		if got := strings.ReplaceAll(log.String(), file, "FILE"); got != want {
			t.Errorf("log\n%swant\n%s", got, want)
		}
	})
}

func TestNoTokens(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	file, _ := writeTokens(t)
	readTokens(t, file, textLog(&log))
	if !strings.Contains(log.String(), "token file has no tokens; all calls are rejected") {
		t.Error(log.String())
	}
}

const unknownToken = "unknown token: headgate token create NAME makes a token, and its line for the file that " +
	"admin.tokens_file names"

func TestUnauthorized(t *testing.T) {
	t.Parallel()
	file, tokens := writeTokens(t, "ann")
	h := newAPI(t, readTokens(t, file, discard), discard)
	const none = "token required: send Authorization: Bearer TOKEN; headgate token create NAME makes a token"
	for authorization, want := range map[string]string{
		"":                        none,
		"Bearer":                  none,
		"Bearer ":                 none,
		"Basic " + tokens[0]:      none,
		tokens[0]:                 none,
		"Bearer x":                unknownToken,
		"Bearer " + tokens[0][1:]: unknownToken,
		"bearer  " + tokens[0]:    "",
	} {
		for _, path := range []string{adminapi.ExplainPath, "/nowhere"} {
			r := post(`{}`)
			r.URL.Path = path
			r.Header.Set("Authorization", authorization)
			w := serve(h, r)
			if want == "" {
				if w.Code == http.StatusUnauthorized {
					t.Errorf("%q: %s", authorization, w.Body)
				}
				continue
			}
			detail := checkProblem(t, w, http.StatusUnauthorized)
			if detail != want || w.Header().Get("Www-Authenticate") != "Bearer" {
				t.Errorf("%q: %s %v", authorization, detail, w.Header())
			}
		}
	}
}

// TestGuessing checks that a peer gets ten guesses at once and then one every tenth of a second, and that others are not affected.
func TestGuessing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file, tokens := writeTokens(t, "ann")
		line, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		const madeUp = "hunter2"
		own := fmt.Sprintf("%x bob\n", sha256.Sum256([]byte(madeUp)))
		writeFile(t, file, strings.Repeat(string(line), 20_000)+own) // so that lookups are slow and guesses overlap
		var log bytes.Buffer
		h := newAPI(t, readTokens(t, file, discard), textLog(&log))
		send := func(peer, token string) int {
			r := withToken(post(`{}`), token)
			r.RemoteAddr = peer
			w := serve(h, r)
			if w.Code == http.StatusTooManyRequests {
				if d := checkProblem(t, w, w.Code); w.Header().Get("Retry-After") != "1" ||
					!strings.HasPrefix(d, "too many wrong tokens from ") || !strings.HasSuffix(d, ": try again in 1 s") {
					t.Errorf("%v %s", w.Header(), d)
				}
			}
			return w.Code
		}
		for range 20 { // valid tokens are not charged
			if send("[2001:db8::1]:1", tokens[0]) != http.StatusOK {
				t.Fatal("a valid token is rejected")
			}
		}
		var rejected, throttled atomic.Int64
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				switch code := send("[2001:db8::2]:2", "hgt_guess"); code {
				case http.StatusUnauthorized:
					rejected.Add(1)
				case http.StatusTooManyRequests:
					throttled.Add(1)
				default:
					t.Errorf("status %d", code)
				}
			})
		}
		all.Wait()
		if rejected.Load() != 10 || throttled.Load() != 90 {
			t.Errorf("%d guesses, %d throttled", rejected.Load(), throttled.Load())
		}
		for peer, want := range map[string]int{
			"[2001:db8::3]:3": 429, "[2001:db8:0:1::2]:2": 200, "192.0.2.1:1": 200, "@": 200,
		} {
			if got := send(peer, madeUp); got != want {
				t.Errorf("%s: %d, want %d", peer, got, want)
			}
			if got := send(peer, tokens[0]); got != http.StatusOK { // cannot be guessed
				t.Errorf("%s: %d with a valid token", peer, got)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if got := send("[2001:db8::3]:3", madeUp); got != http.StatusOK {
			t.Errorf("%d after a tenth of a second", got)
		}
		time.Sleep(10 * time.Second)
		send("[2001:db8::2]:2", "hgt_guess")
		const warning = `level=WARN msg="wrong token; call rejected" peer=2001:db8::/64` + "\n"
		if log.String() != warning+warning {
			t.Error(log.String())
		}
	})
}

// TestCallerIsLogged checks that the debug log has the caller, and never a token.
func TestCallerIsLogged(t *testing.T) {
	t.Parallel()
	file, tokens := writeTokens(t, "ann")
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := newAPI(t, readTokens(t, file, log), log)
	serve(h, withToken(post(`{}`), tokens[0]))
	serve(h, withToken(post(`{}`), tokens[0]+"x"))
	if !strings.Contains(b.String(), `msg="admin API called" caller=ann method=POST path=/v1/explain`) ||
		strings.Contains(b.String(), tokens[0]) {
		t.Error(b.String())
	}
}
