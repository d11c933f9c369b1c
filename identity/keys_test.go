package identity_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/headgate/headgate/identity"
)

// In a synctest bubble, time advances only while no goroutine waits for a server, so minutes pass at once.

// pass advances time and waits until all goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestKeyFileIsReloaded(t *testing.T) {
	t.Parallel()
	one, two := rsaKeys()[0], rsaKeys()[1]
	file := writeFile(t, "keys.json", jwkSet(t, rsaJWK("1", one)))
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		who := resolver(t, identity.Options{
			JWT: identity.JWT{Algorithms: []string{"RS256"}, KeyFile: file},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		old := carrying(sign(t, jwt.SigningMethodRS256, one, "1", with(nil)))
		fresh := carrying(sign(t, jwt.SigningMethodRS256, two, "2", with(nil)))
		expect := func(when, oldUser, freshUser string) {
			t.Helper()
			if got := who.Attributes(old)["user"]; got != oldUser {
				t.Errorf("%s: old key: user %q, want %q", when, got, oldUser)
			}
			if got := who.Attributes(fresh)["user"]; got != freshUser {
				t.Errorf("%s: new key: user %q, want %q", when, got, freshUser)
			}
		}
		expect("at first", "ada", "")
		writeFile(t, file, []byte("{half of a fi"))
		pass(30 * time.Second)
		expect("while the file is broken", "ada", "")
		if n := strings.Count(log.String(), "not a JWK set"); n != 1 {
			t.Errorf("the broken file is %d times in the log:\n%s", n, log.String())
		}
		writeFile(t, file, jwkSet(t, rsaJWK("1", one), rsaJWK("2", two)))
		pass(10 * time.Second)
		expect("with both keys", "ada", "ada")
		writeFile(t, file, jwkSet(t, rsaJWK("2", two)))
		pass(10 * time.Second)
		expect("after the old key was removed", "", "ada")
	})
}

// keyServer serves the stored document, or an error.
type keyServer struct {
	*httptest.Server
	document atomic.Pointer[[]byte]
	requests atomic.Int32
}

func newKeyServer(t *testing.T) *keyServer {
	t.Helper()
	s := &keyServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.requests.Add(1)
		document := s.document.Load()
		if document == nil {
			http.Error(w, "later", http.StatusServiceUnavailable)
			return
		}
		w.Write(*document) //nolint:errcheck // A test that needs it fails.
	}))
	t.Cleanup(s.Close)
	return s
}

func TestKeyURL(t *testing.T) {
	t.Parallel()
	one, two := rsaKeys()[0], rsaKeys()[1]
	server := newKeyServer(t)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		who := resolver(t, identity.Options{
			JWT: identity.JWT{Algorithms: []string{"RS256"}, KeyURL: server.URL},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		old := carrying(sign(t, jwt.SigningMethodRS256, one, "1", with(nil)))
		fresh := carrying(sign(t, jwt.SigningMethodRS256, two, "2", with(nil)))

		if got := who.Attributes(old)["user"]; got != "" {
			t.Errorf("without keys: user %q", got)
		}
		pass(35 * time.Second)
		if n := server.requests.Load(); n != 4 {
			t.Errorf("%d requests to a failing server in 35 s, want 4", n)
		}
		if n := strings.Count(log.String(), "status 503"); n != 1 {
			t.Errorf("the failure is %d times in the log:\n%s", n, log.String())
		}

		set := jwkSet(t, rsaJWK("1", one))
		server.document.Store(&set)
		pass(10 * time.Second)
		if got := who.Attributes(old)["user"]; got != "ada" {
			t.Errorf("with keys: user %q", got)
		}
		pass(time.Minute)

		// A token with a new key triggers a refresh at once, but not for each such token.
		set = jwkSet(t, rsaJWK("1", one), rsaJWK("2", two))
		server.document.Store(&set)
		before := server.requests.Load()
		if got := who.Attributes(fresh)["user"]; got != "" {
			t.Errorf("with a key not yet known: user %q", got)
		}
		pass(time.Second)
		if got := who.Attributes(fresh)["user"]; got != "ada" {
			t.Errorf("after a refresh: user %q", got)
		}
		unknown := carrying(sign(t, jwt.SigningMethodRS256, two, "3", with(nil)))
		for range 100 {
			who.Attributes(unknown)
			pass(100 * time.Millisecond)
		}
		if n := server.requests.Load() - before; n != 2 {
			t.Errorf("%d requests in 11 s, want 2", n)
		}

		// An unavailable server changes nothing. A removed key is soon dropped, and so are its tokens.
		server.document.Store(nil)
		pass(10 * time.Minute)
		if got := who.Attributes(old)["user"]; got != "ada" {
			t.Errorf("while the server fails: user %q", got)
		}
		set = jwkSet(t, rsaJWK("2", two))
		server.document.Store(&set)
		pass(5 * time.Minute)
		if got := who.Attributes(old)["user"]; got != "" {
			t.Errorf("with a removed key: user %q", got)
		}

		who.Close()
		before = server.requests.Load()
		pass(time.Hour)
		if n := server.requests.Load() - before; n != 0 {
			t.Errorf("%d requests after Close", n)
		}
		if got := who.Attributes(carrying(sign(t, jwt.SigningMethodRS256, two, "2", with(nil))))["user"]; got != "ada" {
			t.Errorf("after Close: user %q", got)
		}
		who.Close()
	})
}

// TestKeyURLThatHangs tests that a server that accepts the connection and does not respond blocks neither New, a request nor Close.
func TestKeyURLThatHangs(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	start := time.Now()
	who := resolver(t, identity.Options{JWT: identity.JWT{Algorithms: []string{"RS256"}, KeyURL: "http://" + listener.Addr().String()}})
	token := sign(t, jwt.SigningMethodRS256, rsaKeys()[0], "1", with(nil))
	if got := who.Attributes(carrying(token))["user"]; got != "" {
		t.Errorf("user %q", got)
	}
	who.Close()
	if elapsed := time.Since(start); elapsed > 3*time.Second {
		t.Errorf("elapsed %s", elapsed)
	}
}

// TestKeyURLIsTheOnlySource tests that redirects and documents that are too large are rejected, that no other server gets a request,
// and that the query of the URL is not logged.
func TestKeyURLIsTheOnlySource(t *testing.T) {
	t.Parallel()
	set := jwkSet(t, rsaJWK("1", rsaKeys()[0]))
	other := newKeyServer(t)
	other.document.Store(&set)
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusFound)
		}, "redirects are not followed"},
		"a redirect to itself": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusMovedPermanently)
		}, "redirects are not followed"},
		"a large document": {func(w http.ResponseWriter, _ *http.Request) {
			w.Write(append(bytes.Repeat([]byte(" "), 1<<20), set...)) //nolint:errcheck // The client does not read to the end.
		}, "more than 1048576 bytes"},
	} {
		server := httptest.NewServer(test.handler)
		t.Cleanup(server.Close)
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			who := resolver(t, identity.Options{
				JWT: identity.JWT{Algorithms: []string{"RS256"}, KeyURL: server.URL + "/keys?token=hunter2"},
				Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			pass(time.Second)
			if got := who.Attributes(carrying(sign(t, jwt.SigningMethodRS256, rsaKeys()[0], "1", with(nil))))["user"]; got != "" {
				t.Errorf("%s: user %q", name, got)
			}
			who.Close()
			if logged := log.String(); !strings.Contains(logged, test.want) || strings.Contains(logged, "hunter2") {
				t.Errorf("%s: log %s", name, logged)
			}
		})
	}
	if n := other.requests.Load(); n != 0 {
		t.Errorf("%d requests to the other server", n)
	}
}

func TestKeysChangeWhileTokensAreRead(t *testing.T) {
	t.Parallel()
	one, two := rsaKeys()[0], rsaKeys()[1]
	server := newKeyServer(t)
	sets := [][]byte{jwkSet(t, rsaJWK("1", one)), jwkSet(t, rsaJWK("2", two))}
	server.document.Store(&sets[0])
	synctest.Test(t, func(t *testing.T) {
		who := resolver(t, identity.Options{JWT: identity.JWT{Algorithms: []string{"RS256"}, KeyURL: server.URL}})
		requests := []*http.Request{
			carrying(sign(t, jwt.SigningMethodRS256, one, "1", with(nil))),
			carrying(sign(t, jwt.SigningMethodRS256, two, "2", with(nil))),
		}
		var readers sync.WaitGroup
		for i := range 4 {
			readers.Go(func() {
				for range 50 {
					r := requests[i%2]
					if user := who.Attributes(r, "claim.sub")["user"]; user != "" && user != "ada" {
						t.Errorf("user %q", user)
					}
					time.Sleep(time.Second)
				}
			})
		}
		for i := range 5 {
			server.document.Store(&sets[i%2])
			time.Sleep(10 * time.Second)
		}
		readers.Wait()
		who.Close()
	})
}
