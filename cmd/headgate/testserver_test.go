package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/testenv"
)

// patience is the longest time that tests wait for an event on a busy machine.
const patience = 20 * time.Second

// redisConnected is the log message of a server whose Redis responds.
const redisConnected = "redis connected"

// logLine is a line of the log, with the fields that tests use.
type logLine struct {
	Level, Msg, Listener, Address, Event, Version, Duration, Error string
	TimedOut                                                       bool `json:"timed_out"`
}

// serverLog is the output of a server, in which tests wait for messages.
type serverLog struct{ testenv.Log }

// find returns the last line that matches.
func (l *serverLog) find(match func(logLine) bool) (logLine, bool) {
	var found logLine
	ok := false
	scanner := bufio.NewScanner(strings.NewReader(l.String()))
	for scanner.Scan() {
		var line logLine
		if json.Unmarshal(scanner.Bytes(), &line) == nil && match(line) {
			found, ok = line, true
		}
	}
	return found, ok
}

// testServer is a server started by a test.
type testServer struct {
	t    *testing.T
	out  serverLog
	log  serverLog
	stop context.CancelFunc
	done chan struct{}
	err  error
}

// serve starts a server in this process. It is stopped at the end of the test and must stop without error.
func serve(t *testing.T, args ...string) *testServer {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &testServer{t: t, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = (&program{out: &r.out, log: &r.log}).run(ctx, append([]string{"serve"}, args...))
	}()
	t.Cleanup(func() {
		stop()
		if <-r.done; r.err != nil {
			t.Errorf("the server stopped with %v", r.err)
		}
	})
	return r
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// addressOf waits until a listener is up and returns its address.
func (r *testServer) addressOf(listener string) string {
	r.t.Helper()
	var line logLine
	eventually(r.t, "listener "+listener, func() (ok bool) {
		select {
		case <-r.done:
			r.t.Fatalf("the server stopped: %v\n%s%s", r.err, r.out.String(), r.log.String())
		default:
		}
		line, ok = r.log.find(func(l logLine) bool { return l.Msg == "listening" && l.Listener == listener })
		return ok
	})
	return line.Address
}

func (r *testServer) waitForLog(what string) {
	r.t.Helper()
	eventually(r.t, what, func() bool { return strings.Contains(r.log.String(), what) })
}

// send sends a request and returns the response.
func send(t *testing.T, method, url, body string) (status int, response string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

type checkResponse struct {
	Allowed   bool
	Path      string
	Version   string
	Remaining int64
}

// check sends a check over HTTP.
func (r *testServer) check(attributes string) checkResponse {
	r.t.Helper()
	status, body := send(r.t, "POST", "http://"+r.addressOf("http")+"/v1/check", `{"attributes": {`+attributes+`}}`)
	var a checkResponse
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusOK {
		r.t.Fatalf("%d: %v\n%s", status, err, body)
	}
	return a
}

// checkStored checks new clients until Redis decides in time: on a busy machine Redis may take more than 10 ms.
func (r *testServer) checkStored() checkResponse {
	r.t.Helper()
	var a checkResponse
	n := 0
	eventually(r.t, "a decision by Redis", func() bool {
		n++
		a = r.check(fmt.Sprintf(`"ip": "198.51.%d.%d"`, n/256, n%256))
		return a.Path == "store"
	})
	return a
}

// readiness is the body of /readyz, with the fields that tests use.
type readiness struct {
	Status string
	Rules  struct{ Version, Problem string }
	Redis  struct {
		Status, Address   string
		ShardsUnavailable int `json:"shards_unavailable"`
	}
}

func (r *testServer) ready() (int, readiness) {
	r.t.Helper()
	status, body := send(r.t, "GET", "http://"+r.addressOf("ops")+"/readyz", "")
	var report readiness
	if err := json.Unmarshal([]byte(body), &report); err != nil {
		r.t.Fatalf("%v\n%s", err, body)
	}
	return status, report
}

const anyPorts = "listen: {http: 127.0.0.1:0, grpc: 127.0.0.1:0, ops: 127.0.0.1:0, admin: 127.0.0.1:0}\n"

const fivePerHour = "rules: [{id: all, by: [ip], limit: 5/hour}]\n"

// configure writes a config with free ports, and its rules next to it. more is appended to the config.
func configure(t *testing.T, more, rules string) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, "config.yaml")
	writeFile(t, filepath.Join(dir, "rules.yaml"), rules)
	writeFile(t, file, anyPorts+"rules: rules.yaml\n"+more)
	return dir, file
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestMain checks that no goroutines leak, and unsets the variables that select the developer's own server.
func TestMain(m *testing.M) {
	for _, name := range []string{adminclient.ServerVariable, adminclient.TokenVariable} {
		_ = os.Unsetenv(name) // it fails only for an invalid name
	}
	goleak.VerifyTestMain(m)
}
