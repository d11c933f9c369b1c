package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// TestServeMemory runs a server in production without Redis: it listens on all addresses, requires tokens, enforces two limits
// exactly for concurrent callers, and starts at zero when it is restarted.
func TestServeMemory(t *testing.T) {
	t.Parallel()
	const token = "headgate-token-of-a-gateway-0123456789"
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	writeFile(t, filepath.Join(dir, "callers"), fmt.Sprintf("%x gateway caller\n", sha256.Sum256([]byte(token))))
	writeFile(t, filepath.Join(dir, "rules.yaml"), `rules:
  - {id: by-user, by: [user], limit: {rate: 60/hour, burst: 60}}
  - {id: all, by: [], limit: 100/hour, algorithm: fixed_window}
`)
	writeFile(t, file, `store: memory
listen: {http: ":0", grpc: off, ops: 127.0.0.1:0, admin: off, tokens_file: callers}
rules: rules.yaml
`)
	for range 2 { // the second server has counters of its own
		r := serve(t, "--config", file)
		r.waitForLog("counters are in memory: they are not shared with other servers")
		_, port, err := net.SplitHostPort(r.addressOf("http"))
		testenv.NoError(t, err)
		url := "http://127.0.0.1:" + port + "/v1/check"
		if _, ready := send(t, http.MethodGet, "http://"+r.addressOf("ops")+"/readyz", ""); !strings.Contains(ready, `"status":"ok"`) || strings.Contains(ready, "redis") {
			t.Errorf("readyz: %s", ready)
		}
		if status, body := send(t, http.MethodPost, url, `{"attributes": {"user": "ann"}}`); status != http.StatusUnauthorized {
			t.Errorf("without a token: %d %s", status, body)
		}
		var allowed [2]atomic.Int64
		var callers sync.WaitGroup
		for i := range 40 {
			callers.Go(func() {
				for range 10 {
					user := i % 2
					status, ok, err := sendToken(url, token, fmt.Sprintf(`{"attributes": {"user": "user-%d"}, "cost": 2}`, user))
					if status != http.StatusOK || err != nil {
						t.Errorf("%d: %v", status, err)
					}
					if ok {
						allowed[user].Add(2)
					}
				}
			})
		}
		callers.Wait()
		if a, b := allowed[0].Load(), allowed[1].Load(); a > 60 || b > 60 || a+b != 100 {
			t.Errorf("%d and %d units allowed, of 60 per user and 100 in total", a, b)
		}
		if _, metrics := send(t, http.MethodGet, "http://"+r.addressOf("ops")+"/metrics", ""); !strings.Contains(metrics, "\nheadgate_memory_counters 3\n") {
			t.Error("headgate_memory_counters is not 3")
		}
		r.stop()
		<-r.done
	}
}

// TestServeMemoryEvicts floods a server with more clients than it may have counters for. It must report that, and a client that
// was denied must stay denied.
func TestServeMemoryEvicts(t *testing.T) {
	t.Parallel()
	_, file := configure(t, "store: memory\nmemory: {max_counters: 1000}\n", "rules: [{id: hourly, by: [user], limit: 5/hour}]\n")
	r := serve(t, "--config", file)
	r.sendChecks(6, `"user": "ann"`)
	var flood []string
	for i := range 1000 {
		flood = append(flood, fmt.Sprintf(`{"attributes": {"user": "flood-%d"}}`, i))
	}
	url := "http://" + r.addressOf("http") + "/v1/check/batch"
	if status, body := send(t, http.MethodPost, url, `{"requests": [`+strings.Join(flood, ",")+`]}`); status != http.StatusOK {
		t.Fatalf("%d: %s", status, body)
	}
	if r.check(`"user": "ann"`).Allowed {
		t.Error("a flood of other clients evicted the counter of a denied one")
	}
	r.waitForLog("raise memory.max_counters")
	eventually(t, "evictions in the metrics", func() bool {
		_, metrics := send(t, http.MethodGet, "http://"+r.addressOf("ops")+"/metrics", "")
		return strings.Contains(metrics, "\nheadgate_store_evicted_keys_total 1\n")
	})
}

// sendToken posts a check with a caller's token, and returns the status and whether it was allowed.
func sendToken(url, token, body string) (status int, allowed bool, err error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, false, err
	}
	req.Header.Set("X-Headgate-Token", token)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}).Do(req)
	if err != nil {
		return 0, false, err
	}
	defer res.Body.Close()
	var a checkResponse
	err = json.NewDecoder(res.Body).Decode(&a)
	return res.StatusCode, a.Allowed, err
}
