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

// patience is how long something may take on a busy machine.
const patience = 20 * time.Second

// logLine is a line of the log, as far as tests look at it.
type logLine struct {
	Level, Msg, Listener, Address, Event, Version, Took, Error string
	Cut                                                        bool
}

// serverLog is where a server writes, and tests wait for what it says.
type serverLog struct{ testenv.Log }

// find is the last line that a test looks for.
func (l *serverLog) find(is func(logLine) bool) (logLine, bool) {
	var found logLine
	ok := false
	scanner := bufio.NewScanner(strings.NewReader(l.String()))
	for scanner.Scan() {
		var line logLine
		if json.Unmarshal(scanner.Bytes(), &line) == nil && is(line) {
			found, ok = line, true
		}
	}
	return found, ok
}

// running is a server that a test has started.
type running struct {
	t    *testing.T
	out  serverLog
	log  serverLog
	stop context.CancelFunc
	done chan struct{}
	err  error
}

// serve starts a server in this process. It is stopped at the end of the test, and must then end well.
func serve(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{t: t, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = (&program{out: &r.out, log: &r.log}).run(ctx, append([]string{"serve"}, args...))
	}()
	t.Cleanup(func() {
		stop()
		if <-r.done; r.err != nil {
			t.Errorf("the server ended with %v", r.err)
		}
	})
	return r
}

// eventually waits for something that is about to happen.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// at is the address of a listener, as soon as it is up.
func (r *running) at(listener string) string {
	r.t.Helper()
	var line logLine
	eventually(r.t, "listener "+listener, func() (ok bool) {
		select {
		case <-r.done:
			r.t.Fatalf("the server ended: %v\n%s%s", r.err, r.out.String(), r.log.String())
		default:
		}
		line, ok = r.log.find(func(l logLine) bool { return l.Msg == "listening" && l.Listener == listener })
		return ok
	})
	return line.Address
}

func (r *running) says(what string) {
	r.t.Helper()
	eventually(r.t, what, func() bool { return strings.Contains(r.log.String(), what) })
}

// send sends a request and reads the answer.
func send(t *testing.T, method, url, body string) (status int, answer string) {
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

type answer struct {
	Allowed   bool
	Path      string
	Version   string
	Remaining int64
}

// check asks over HTTP.
func (r *running) check(attributes string) answer {
	r.t.Helper()
	status, body := send(r.t, "POST", "http://"+r.at("http")+"/v1/check", `{"attributes": {`+attributes+`}}`)
	var a answer
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != http.StatusOK {
		r.t.Fatalf("%d: %v\n%s", status, err, body)
	}
	return a
}

// counted is the answer to somebody new for whom Redis was quick enough: on a busy machine 10 ms are little.
func (r *running) counted() answer {
	r.t.Helper()
	var a answer
	n := 0
	eventually(r.t, "an answer of Redis", func() bool {
		n++
		a = r.check(fmt.Sprintf(`"ip": "198.51.%d.%d"`, n/256, n%256))
		return a.Path == "store"
	})
	return a
}

// readiness is the body of /readyz, as far as tests look at it.
type readiness struct {
	Status string
	Rules  struct{ Version, Problem string }
	Redis  struct {
		Status, Address   string
		ShardsUnavailable int `json:"shards_unavailable"`
	}
}

func (r *running) ready() (int, readiness) {
	r.t.Helper()
	status, body := send(r.t, "GET", "http://"+r.at("ops")+"/readyz", "")
	var report readiness
	if err := json.Unmarshal([]byte(body), &report); err != nil {
		r.t.Fatalf("%v\n%s", err, body)
	}
	return status, report
}

const anyPorts = "listen: {http: 127.0.0.1:0, grpc: 127.0.0.1:0, ops: 127.0.0.1:0, admin: 127.0.0.1:0}\n"

const fivePerHour = "rules: [{id: all, by: [ip], limit: 5/hour}]\n"

// configure writes a config with any ports and rules beside it; more is added to it.
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

// TestMain sees that servers leave nothing behind. Whatever server its user asks usually is not for tests.
func TestMain(m *testing.M) {
	for _, name := range []string{adminclient.ServerVariable, adminclient.TokenVariable} {
		_ = os.Unsetenv(name) // what cannot be unset is not set
	}
	goleak.VerifyTestMain(m)
}
