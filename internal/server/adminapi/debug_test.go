package adminapi

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func profileOf(a *api, name, as string) (status int, body string) {
	return send(a, httptest.NewRequest(http.MethodGet, "/debug/pprof/"+name, http.NoBody), as)
}

// The profiles can be read by the Go tools. Invalid calls are rejected with a remedy.
func TestProfiles(t *testing.T) {
	t.Parallel()
	a := newFilesAPI(t)
	for _, name := range []string{"allocs", "goroutine", "heap", "threadcreate"} {
		status, body := profileOf(a, name, admin)
		if _, err := gzip.NewReader(strings.NewReader(body)); status != http.StatusOK || err != nil {
			t.Errorf("%s: %d %v", name, status, err)
		}
	}
	for name, want := range map[string]string{
		"cmdline":            "profile \"cmdline\": not found: must be allocs,",
		"profile?seconds=61": "seconds \"61\": must be 1 to 60",
		"trace?seconds=x":    "seconds \"x\": must be 1 to 60",
		"heap?seconds=1":     "seconds: not allowed for heap, which is a snapshot: omit it",
		"heap?debug=1":       "unknown parameter \"debug\": known are seconds",
	} {
		if status, body := profileOf(a, name, admin); status/100 != 4 || !strings.HasPrefix(body, want) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// A profile may take longer than other calls, and only one is taken at a time.
func TestLongProfile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newFilesAPI(t)
		began := time.Now()
		done := make(chan int)
		go func() {
			status, _ := profileOf(a, "mutex?seconds=60", admin)
			done <- status
		}()
		synctest.Wait()
		if status, body := profileOf(a, "heap", admin); status != http.StatusConflict || !strings.HasPrefix(body, "another profile") {
			t.Errorf("another: %d %s", status, body)
		}
		if status := <-done; status != http.StatusOK || time.Since(began) != time.Minute {
			t.Errorf("%d after %v", status, time.Since(began))
		}
		if status, body := profileOf(a, "heap", admin); status != http.StatusOK {
			t.Errorf("afterwards: %d %s", status, body)
		}
	})
}

// The listener's timeouts do not interrupt a profile.
func TestProfileOutlivesTimeouts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	server := httptest.NewUnstartedServer(newFilesAPI(t))
	server.Config.ReadTimeout, server.Config.WriteTimeout = 200*time.Millisecond, 200*time.Millisecond
	server.Start()
	defer server.Close()
	for _, name := range []string{"block", "profile", "trace"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/debug/pprof/"+name+"?seconds=1", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+admin)
		began := time.Now()
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || time.Since(began) < time.Second ||
			!bytes.HasPrefix(data, []byte("\x1f\x8b")) && !bytes.HasPrefix(data, []byte("go 1.")) {
			t.Errorf("%s: %d, %d bytes after %v: %v", name, res.StatusCode, len(data), time.Since(began), err)
		}
	}
}
