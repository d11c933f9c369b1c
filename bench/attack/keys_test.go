package attack

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// keySource is a key server that counts requests and the bytes it could send.
type keySource struct {
	*httptest.Server
	requests, sent atomic.Int64
}

func newKeySource(t *testing.T, secure bool, handler http.HandlerFunc) *keySource {
	t.Helper()
	s := &keySource{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		handler(w, r)
	}))
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// forgedKeySet returns a JWK set with a key of the attacker.
func forgedKeySet(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "RSA", "kid": "1", "alg": "RS256", "n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": "AQAB",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestKeyRedirectsAreNotFollowed: a key server, or a man in the middle, redirects from https to http, to another host, or to an
// internal address. The server must not follow.
func TestKeyRedirectsAreNotFollowed(t *testing.T) {
	set := forgedKeySet(t)
	evil := newKeySource(t, false, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(set) })
	other := strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)
	var sources []*keySource
	var addresses []string
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, secure := range []bool{true, false} {
			for _, to := range []string{evil.URL + "/keys", other + "/keys"} {
				if !long() && status != 302 && status != 307 {
					continue
				}
				source := newKeySource(t, secure, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, status) })
				sources, addresses = append(sources, source), append(addresses, source.URL+"/keys")
			}
		}
	}
	trust(t, sources)
	for i, address := range addresses {
		node := startServer(t, fmt.Sprintf("identity: {jwt: {algorithms: [RS256], key_url: %q}}\n", address), "rules: [{id: a, by: [user], limit: 1/s}]\n")
		waitUntil(t, "the keys are requested", func() bool { return sources[i].requests.Load() > 0 })
		waitUntil(t, "the log reports the redirect", func() bool {
			return strings.Contains(node.Output(), "redirects are not followed") || evil.requests.Load() > 0
		})
		node.Kill()
	}
	t.Logf("%d servers that redirect; %d requests to the target", len(sources), evil.requests.Load())
	if n := evil.requests.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// trust makes programs that are started from now on trust the certificates of key servers.
func trust(t *testing.T, sources []*keySource) {
	t.Helper()
	var bundle []byte
	for _, s := range sources {
		if c := s.Certificate(); c != nil {
			bundle = append(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		}
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", file)
}

func waitUntil(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", what)
		}
	}
}

// TestOversizedKeyResponse: a key server responds with 100 MB, or with endless headers.
func TestOversizedKeyResponse(t *testing.T) {
	const size = 100 << 20
	for name, handler := range map[string]func(s *keySource) http.HandlerFunc{
		"body": func(s *keySource) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				chunk := []byte(strings.Repeat(" ", 1<<16))
				for sent := 0; sent < size; sent += len(chunk) {
					n, err := w.Write(chunk)
					if s.sent.Add(int64(n)); err != nil {
						return
					}
				}
			}
		},
		"header": func(s *keySource) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				for i := range 5000 {
					w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1<<10))
				}
				n, _ := w.Write([]byte("{}"))
				s.sent.Add(int64(n))
			}
		},
	} {
		var source *keySource
		source = newKeySource(t, false, func(w http.ResponseWriter, r *http.Request) { handler(source)(w, r) })
		node := startServer(t, fmt.Sprintf("identity: {jwt: {algorithms: [RS256], key_url: %q}}\n", source.URL), "rules: [{id: a, by: [user], limit: 1/s}]\n")
		waitUntil(t, "the log reports unreadable keys", func() bool { return strings.Contains(node.Output(), "JWT keys cannot be read") })
		node.Kill()
		source.CloseClientConnections()
		t.Logf("%s: %d bytes were read", name, source.sent.Load())
		if n := source.sent.Load(); n > 16<<20 { // including kernel buffers
			t.Errorf("%s: %d bytes were read", name, n)
		}
		for _, words := range map[string][]string{"body": {"more than 1048576 bytes"}, "header": {"header"}}[name] {
			if !strings.Contains(node.Output(), words) {
				t.Errorf("%s: the log does not contain %q:\n%s", name, words, node.Output())
			}
		}
	}
}

// TestKeyURLRequiresHTTPS: keys are fetched by https, or from the same machine, since a man in the middle can replace keys sent
// by http.
func TestKeyURLRequiresHTTPS(t *testing.T) {
	program := headgateProgram(t)
	for address, fine := range map[string]bool{
		"https://id.example.com/keys": true, "http://127.0.0.1:1/keys": true, "http://localhost:1/keys": true, "http://[::1]:1/keys": true, "http://127.8.9.1/keys": true,
		"http://id.example.com/keys": false, "http://192.0.2.1/keys": false, "http://10.0.0.1/keys": false, "http://localhost.example.com/keys": false,
		"http://127.0.0.1.example.com/keys": false, "http://127.0.0.1@192.0.2.1/keys": false, "http://0.0.0.0/keys": false, "HTTP://id.example.com/keys": false,
		"http://[::ffff:192.0.2.1]/keys": false, "http://localhost@id.example.com/": false, "file:///etc/keys": false,
	} {
		for _, section := range []string{"identity: {jwt: {algorithms: [RS256], key_url: %q}}", "admin: {jwt: {algorithms: [RS256], key_url: %q, issuer: i, audience: a}}"} {
			dir := t.TempDir()
			for name, text := range map[string]string{"rules.yaml": "rules: []\n", "config.yaml": "rules: rules.yaml\n" + fmt.Sprintf(section, address) + "\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), program, "config", "validate", filepath.Join(dir, "config.yaml")).CombinedOutput()
			if (err == nil) != fine || !fine && !strings.Contains(string(out), "write https://") {
				t.Errorf("%s in %s: %v\n%s", address, section, err, out)
			}
		}
	}
}
