package main

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// sharedRule has a limit of 300 for three regions, so that each has a share of 100.
const sharedRule = "rules: [{id: all, by: [user], regions: shared, limit: {rate: 300/10s, algorithm: fixed_window}}]\n"

// sharedShare and sharedLimit are the numbers of the rule.
const sharedShare, sharedLimit = 100, 300

// regionsConfig writes the configs of three regions with rules and a certificate each, and returns the files by region.
func regionsConfig(t *testing.T, rules string) map[string]string {
	t.Helper()
	names := []string{"ap", "eu", "us"}
	ca := testenv.NewCertificate(t, nil, &x509.Certificate{})
	addresses := map[string]string{}
	var members strings.Builder
	for _, name := range names {
		addresses[name] = testenv.FreeAddress(t)
		fmt.Fprintf(&members, "    %s: {address: %q}\n", name, addresses[name])
	}
	files := map[string]string{}
	for _, name := range names {
		dir := t.TempDir()
		certificate := testenv.NewCertificate(t, ca, &x509.Certificate{})
		testenv.WriteFiles(t, dir, map[string]string{
			"rules.yaml": rules, "cert.pem": certificate.CertPEM, "key.pem": certificate.KeyPEM, "ca.pem": ca.CertPEM,
			"config.yaml": strings.Replace(anyPorts, "{", fmt.Sprintf("{regions: %q, ", addresses[name]), 1) +
				fmt.Sprintf("rules: rules.yaml\nredis: {address: redis://%s, deadline: 1s}\n", testenv.Start(t, testenv.Redis).Addr()) +
				"regions:\n  name: " + name + "\n  members:\n" + members.String() + "  home_deadline: 5s\n  tls: {cert_file: cert.pem, key_file: key.pem, ca_file: ca.pem}\n",
		})
		files[name] = filepath.Join(dir, "config.yaml")
	}
	return files
}

// windows counts allowed and denied requests by the end of their window, which is the same in all regions.
type windows struct {
	mu              sync.Mutex
	allowed, denied map[time.Time]int
}

func newWindows() *windows {
	return &windows{allowed: map[time.Time]int{}, denied: map[time.Time]int{}}
}

// add sends a request of the same user to a server, and counts it.
func (w *windows) add(r *testServer) {
	status, body := send(r.t, http.MethodPost, "http://"+r.addressOf("http")+"/v1/check", `{"attributes": {"user": "ann"}}`)
	var a struct {
		Allowed bool
		Reset   time.Time
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusOK || a.Reset.IsZero() {
		r.t.Errorf("%d: %v\n%s", status, err, body)
		return
	}
	end := a.Reset.UTC().Round(time.Second) // denials are cached with a time that is not exact
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Allowed {
		w.allowed[end]++
	} else {
		w.denied[end]++
	}
}

// run sends requests to all servers at the same time, until a window that was not there before has allowed at least so many, and denied some.
func (w *windows) run(t *testing.T, what string, atLeast int, servers ...*testServer) {
	t.Helper()
	before := maps.Clone(w.allowed)
	done := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for end, n := range w.allowed {
			if _, old := before[end]; !old && n >= atLeast && w.denied[end] > 0 {
				return true
			}
		}
		return false
	}
	deadline := time.Now().Add(5 * patience)
	for !done() {
		var sending sync.WaitGroup
		for _, r := range servers {
			for range 2 {
				sending.Go(func() { w.add(r) })
			}
		}
		sending.Wait()
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: allowed %v, denied %v", what, 5*patience, w.allowed, w.denied)
		}
	}
	t.Logf("%s: allowed %v, denied %v", what, w.allowed, w.denied)
}

// check fails the test if a window has allowed more.
func (w *windows) check(t *testing.T, limit int) {
	t.Helper()
	for end, n := range w.allowed {
		if n > limit {
			t.Errorf("%d of %d were allowed in the window until %s", n, limit, end)
		}
	}
}

// peerUp matches the metric of a region that responds.
var peerUp = regexp.MustCompile(`headgate_region_peer_up\{[^}]*\} 1\n`)

// serveRegions starts a server in each region, and waits until they reach each other.
func serveRegions(t *testing.T, rules string) map[string]*testServer {
	t.Helper()
	return startRegions(t, regionsConfig(t, rules))
}

// startRegions starts a server with each config, and waits until they reach each other.
func startRegions(t *testing.T, files map[string]string) map[string]*testServer {
	t.Helper()
	servers := map[string]*testServer{}
	for name, file := range files {
		servers[name] = serve(t, "--config", file)
	}
	for _, r := range servers {
		r.waitForLog(redisConnected)
		eventually(t, "the regions reach each other", func() bool {
			_, metrics := send(t, http.MethodGet, "http://"+r.addressOf("ops")+"/metrics", "")
			return len(peerUp.FindAllString(metrics, -1)) == 2
		})
	}
	return servers
}

// TestRegions shares a limit between three regions.
func TestRegions(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	servers := serveRegions(t, sharedRule)
	w := newWindows()
	w.run(t, "load in one region", 2*sharedShare+1, servers["eu"]) // both other regions lend units
	w.check(t, sharedLimit)
	w.run(t, "load in all regions", sharedLimit*9/10, servers["ap"], servers["eu"], servers["us"])
	w.check(t, sharedLimit)
	for name, direction := range map[string]string{"eu": "borrowed", "us": "lent", "ap": "lent"} {
		_, metrics := send(t, http.MethodGet, "http://"+servers[name].addressOf("ops")+"/metrics", "")
		if strings.Contains(metrics, fmt.Sprintf("headgate_region_units_total{direction=%q} 0\n", direction)) {
			t.Errorf("%s has %s nothing", name, direction)
		}
	}
}

// sharedAndHome are a shared limit, and one that is counted in the home of each user.
const sharedAndHome = `rules:
  - {id: all, match: {path: /all}, by: [user], regions: shared, limit: {rate: 300/10m, algorithm: fixed_window}}
  - {id: login, match: {path: /login}, by: [user], regions: home, limit: 5/hour, strict: true, on_store_failure: deny}
`

// TestRegionSecrets gives two regions the same secret, and the third another one. A reservation is valid only in the region that made it,
// and the limit of a subject's home applies although regions disagree about subjects.
func TestRegionSecrets(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	files := regionsConfig(t, sharedAndHome)
	for name, secret := range map[string]string{"ap": "the secret of ap and eu", "eu": "the secret of ap and eu", "us": "the secret of us only"} {
		addSecret(t, files[name], secret)
	}
	servers := startRegions(t, files)
	servers["eu"].waitForLog("region has another secret_file")

	post := func(name, call, body string, want int) string {
		status, text := send(t, http.MethodPost, "http://"+servers[name].addressOf("http")+"/v1/"+call, body)
		if status != want {
			t.Fatalf("%s in %s: %d %s", call, name, status, text)
		}
		return text
	}
	var reserved struct{ Reservation string }
	text := post("eu", "reserve", `{"attributes": {"user": "ann", "path": "/all"}, "cost": 20}`, http.StatusOK)
	testenv.NoError(t, json.Unmarshal([]byte(text), &reserved))
	commit := fmt.Sprintf(`{"reservation": %q, "cost": 20}`, reserved.Reservation)
	for _, name := range []string{"ap", "us"} {
		if text := post(name, "commit", commit, http.StatusBadRequest); !strings.Contains(text, "the same namespace, secret_file and region") {
			t.Error(text)
		}
	}
	post("eu", "commit", commit, http.StatusOK)

	for i := range 6 { // they have different homes
		allowed := 0
		for _, name := range []string{"eu", "us", "ap"} {
			allowed += servers[name].allowedOf(6, "/login", fmt.Sprint("user", i), "")
		}
		if allowed > 5 {
			t.Errorf("user%d: %d requests were allowed, want at most 5", i, allowed)
		}
	}
}

// addSecret adds a secret_file to a config.
func addSecret(t *testing.T, file, secret string) {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.NoError(t, err)
	testenv.WriteFiles(t, filepath.Dir(file), map[string]string{"secret": secret, filepath.Base(file): string(text) + "secret_file: secret\n"})
}

// TestRegionAlone checks that a region has its share if no other region responds.
func TestRegionAlone(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	r := serve(t, "--config", regionsConfig(t, sharedRule)["eu"])
	r.waitForLog(redisConnected)
	r.waitForLog("region unreachable")
	w := newWindows()
	w.run(t, "load in one region", sharedShare, r)
	w.check(t, sharedShare)
}
