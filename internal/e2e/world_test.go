package e2e

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// timeout is the maximum time to wait on a busy machine.
const timeout = 20 * time.Second

// world is an application and a Headgate server for gateways. Both end with the test.
type world struct {
	t         testing.TB
	binary    string
	examples  string // directory of the examples; "" means those of the repository
	app       *application
	addresses map[string]string // addresses in the examples, and their replacements
	config    string            // of Headgate
	headgate  *testenv.Program
	token     string // sent by gateways
}

// newWorld starts Headgate with the edited config and rules of the example. edits are pairs of old and new text.
func newWorld(t testing.TB, binary string, edits ...string) *world {
	t.Helper()
	w := &world{t: t, binary: binary, app: newApplication(t)}
	w.addresses = map[string]string{
		"127.0.0.1:6379": testenv.Start(t, testenv.Redis).Addr(),
		"127.0.0.1:8080": testenv.FreeAddress(t),
		"127.0.0.1:8081": testenv.FreeAddress(t),
		"127.0.0.1:8082": testenv.FreeAddress(t),
		"127.0.0.1:9000": w.app.address,
	}
	w.config = filepath.Join(w.render("gateways", edits...), "headgate.yaml")
	w.start()
	return w
}

// newWorldOf starts Headgate with the files that headgate init writes for a gateway.
func newWorldOf(t testing.TB, binary, kind string) *world {
	t.Helper()
	w := newWorld(t, binary)
	w.headgate.Kill()
	w.examples = t.TempDir()
	command := exec.Command(binary, "init", kind, "--dir", filepath.Join(w.examples, kind))
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.config = filepath.Join(w.render(kind), "config.yaml")
	w.start()
	return w
}

// start starts or restarts Headgate.
func (w *world) start() {
	w.t.Helper()
	w.headgate = testenv.Run(w.t, exec.Command(w.binary, "serve", "--config", w.config), w.addresses["127.0.0.1:8080"])
}

// render copies an example with replaced addresses and edits, and returns the directory.
func (w *world) render(example string, edits ...string) (dir string) {
	w.t.Helper()
	from := filepath.Join(cmp.Or(w.examples, "../../examples"), example)
	entries, err := os.ReadDir(from)
	if err != nil {
		w.t.Fatal(err)
	}
	var pairs []string
	for old, address := range w.addresses {
		pairs = append(pairs, old, address)
		if _, oldPort, ok := strings.Cut(old, ":"); ok { // the format of Envoy
			_, port, _ := strings.Cut(address, ":")
			pairs = append(pairs, "port_value: "+oldPort, "port_value: "+port)
		}
	}
	addresses, edit := strings.NewReplacer(pairs...), strings.NewReplacer(edits...)
	dir = w.t.TempDir()
	edited := false
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err != nil {
			w.t.Fatal(err)
		}
		changed := edit.Replace(string(text))
		edited = edited || changed != string(text)
		writeFile(w.t, filepath.Join(dir, entry.Name()), addresses.Replace(changed))
	}
	if len(edits) > 0 && !edited {
		w.t.Fatalf("example %s has none of %q", example, edits)
	}
	return dir
}

// late reports whether a decision was made without Redis because it did not respond within milliseconds, as happens on a busy machine.
// Such decisions are not exact.
func (w *world) late() bool {
	w.t.Helper()
	response, err := http.Get("http://" + w.addresses["127.0.0.1:8082"] + "/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	metrics, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return storeErrors.Match(metrics)
}

// remaining returns the remaining count of a rule that counts all clients together, or that of a tenant.
func (w *world) remaining(rule string, tenant ...string) int {
	w.t.Helper()
	response, err := http.Post("http://"+w.addresses["127.0.0.1:8080"]+"/v1/peek", "application/json",
		strings.NewReader(`{"rule": "`+rule+`", "attributes": {"tenant": "`+strings.Join(tenant, "")+`"}}`))
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	var d struct{ Remaining int }
	if err := json.NewDecoder(response.Body).Decode(&d); err != nil || response.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: %v", response.Status, err)
	}
	return d.Remaining
}

var storeErrors = regexp.MustCompile(`(?m)^headgate_store_errors_total.* [1-9]`)

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// hangUp, instead of a status, closes the connection without a response.
const hangUp = "hang-up"

// application echoes requests, with the status in the query if there is one.
type application struct {
	address string
	mu      sync.Mutex
	count   int
}

func newApplication(t testing.TB) *application {
	t.Helper()
	a := &application{}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.address = server.Listener.Addr().String()
	return a
}

func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.count++
	a.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = []byte(err.Error())
	}
	if r.URL.RawQuery == hangUp {
		panic(http.ErrAbortHandler)
	}
	if status, err := strconv.Atoi(r.URL.RawQuery); err == nil {
		w.WriteHeader(status)
	}
	text := "application: " + r.Method + " " + r.RequestURI + " " + string(body)
	_, _ = io.WriteString(w, text) //nolint:gosec // G705: no browser reads it. An error means that the client disconnected.
}

// reached returns the number of requests that reached the application.
func (a *application) reached() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}

// eventually waits until happened returns true.
func eventually(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, timeout)
		}
	}
}
