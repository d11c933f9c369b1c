package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// constantLoad sends requests to all servers until it is stopped.
func (w *windows) constantLoad(servers map[string]*testServer) (stop func()) {
	var stopped atomic.Bool
	var sending sync.WaitGroup
	for _, r := range servers {
		r.addressOf("http")
		for range 2 {
			sending.Go(func() {
				for !stopped.Load() {
					w.add(r)
					time.Sleep(5 * time.Millisecond) // the limit is reached anyway
				}
			})
		}
	}
	return func() {
		stopped.Store(true)
		sending.Wait()
	}
}

// full returns the number of windows that have allowed at least so many requests.
func (w *windows) full(atLeast int) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, allowed := range w.allowed {
		if allowed >= atLeast {
			n++
		}
	}
	return n
}

// TestRegionsWeight changes the weights of three regions under load. The server that begins the first change is killed at once.
func TestRegionsWeight(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	files := regionsConfig(t, sharedRule)
	servers := map[string]*testServer{}
	token := startJSON[tokenReport](t, 0, "token", "create", "ann", "--role", "admin")
	tokenFile := filepath.Join(t.TempDir(), "token")
	writeFile(t, tokenFile, token.Token)
	for name, file := range files {
		text, err := os.ReadFile(file)
		testenv.NoError(t, err)
		writeFile(t, file, string(text)+"admin: {tokens_file: tokens}\n")
		writeFile(t, filepath.Join(filepath.Dir(file), "tokens"), token.Line)
		servers[name] = serve(t, "--config", file)
	}
	at := func(region string, args ...string) []string {
		return append(append([]string{"regions"}, args...), "--token-file", tokenFile, "--server", "http://"+servers[region].addressOf("admin"))
	}
	w := newWindows()
	stop := w.constantLoad(servers)
	defer stop()

	// A second server of us, which other regions do not reach.
	text, err := os.ReadFile(files["us"])
	testenv.NoError(t, err)
	before, after, _ := strings.Cut(string(text), `{regions: "`)
	_, after, _ = strings.Cut(after, `"`)
	second := filepath.Join(filepath.Dir(files["us"]), "second.yaml")
	writeFile(t, second, before+`{regions: "127.0.0.1:0"`+after)
	doomed, pid := serveBinary(t, "--config", second)
	address := "http://" + doomed.addressOf("admin")
	var began atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		began.Store(true)
		_ = start(t, "regions", "weight", "ap=3", "--token-file", tokenFile, "--server", address) // the server is killed
	}()
	eventually(t, "a request", began.Load)
	time.Sleep(30 * time.Millisecond) // it is killed at any step
	testenv.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	<-done

	drained := startJSON[weightsReport](t, 0, at("eu", "drain", "ap", "--reason", "test")...)
	if drained.Since == nil || len(drained.Grown) == 0 || drained.Regions[0].Weight != 0 || !drained.Regions[0].Acknowledged {
		t.Errorf("drained: %+v", drained)
	}
	t.Logf("change %d: %+v", drained.Serial, drained)
	eventually(t, "the killed server is forgotten", func() bool { return start(t, at("us")...).code == 0 })
	if state := startJSON[regionsReport](t, 0, at("us")...); state.Members[0].Weight != 0 || len(state.Notes) != 1 {
		t.Errorf("headgate regions shows the weight of the config, or does not note the change: %+v", state)
	}
	count := func() int { return w.full(sharedLimit * 9 / 10) }
	grown := count()
	await := func(what string, n int) { // windows take longer than anything else
		for deadline := time.Now().Add(5 * patience); count() < n; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: not within %v: allowed %v", what, 5*patience, w.allowed)
			}
		}
	}
	await("windows in which two regions use the whole limit", grown+3)
	allowed := 0
	eventually(t, "a denial in the drained region", func() bool {
		status, body := send(t, http.MethodPost, "http://"+servers["ap"].addressOf("http")+"/v1/check", `{"attributes": {"user": "bob"}}`)
		if status != http.StatusOK {
			t.Fatalf("%d: %s", status, body)
		}
		if strings.Contains(body, `"allowed":true`) {
			allowed++
		}
		return strings.Contains(body, `"allowed":false`)
	})
	if allowed > 0 {
		t.Errorf("the drained region allowed %d requests of a new user", allowed)
	}
	explained := start(t, append([]string{"explain", "user=bob"}, at("ap")[1:]...)...)
	for _, want := range []string{
		"429: denied by all; retrying does not help: this region has no share of the limit, because its weight is 0\n",
		"\n  headgate regions shows the weights of the regions; headgate regions restore ap gives this region its share again\n",
	} {
		if explained.code != 1 || !strings.Contains(explained.out, want) {
			t.Errorf("want %q: %+v", want, explained)
		}
	}
	restored := start(t, at("ap", "restore", "ap")...)
	if restored.code != 0 || !strings.Contains(restored.out, "calendar month") {
		t.Errorf("restored: %+v", restored)
	}
	t.Log(restored.out)
	if o := start(t, at("ap", "weight", "ap=0", "eu=0", "us=0")...); o.code != 2 || !strings.Contains(o.errors, "in total") {
		t.Errorf("no weight at all: %+v", o)
	}
	if o := start(t, at("ap", "weight", "moon=1")...); o.code != 2 || !strings.Contains(o.errors, "ap, eu, us") {
		t.Errorf("an unknown region: %+v", o)
	}
	if o := start(t, at("eu", "drain", "ap", "--dead")...); o.code != 2 || !strings.Contains(o.errors, "--yes") {
		t.Errorf("dead without confirmation: %+v", o)
	}
	await("windows after the region was restored", count()+4)
	if o := start(t, at("ap", "weight", "eu=3", "us=1", "--reason", "more traffic in eu")...); o.code != 0 || !strings.Contains(o.out, "60.0 %") {
		t.Errorf("weights: %+v", o)
	}
	await("windows with other weights", count()+2)
	stop()
	w.check(t, sharedLimit)
	t.Logf("allowed %v", maps.Clone(w.allowed))
}
