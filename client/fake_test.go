package client_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	callerSide = grpc.BidiStreamingServer[checkv1.CheckStreamRequest, checkv1.CheckStreamResponse]
	// script handles the nth stream of a fake, counted from 1.
	script func(n int, s *session) error
)

// fake is a server that runs a script.
type fake struct {
	checkv1.UnimplementedCheckServiceServer
	script script

	mu      sync.Mutex
	streams int
	seen    map[string]int // number of checks by user
}

func newFake(s script) *fake { return &fake{script: s, seen: map[string]int{}} }

// session is one stream of a fake.
type session struct {
	callerSide
	fake *fake
}

func (f *fake) CheckStream(caller callerSide) error {
	f.mu.Lock()
	f.streams++
	n := f.streams
	f.mu.Unlock()
	return f.script(n, &session{caller, f})
}

func (f *fake) count() (streams, checks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.seen {
		checks += n
	}
	return f.streams, checks
}

func (f *fake) start(t testing.TB) (address string, server *grpc.Server) {
	t.Helper()
	server = grpc.NewServer()
	checkv1.RegisterCheckServiceServer(server, f)
	return listen(t, server), server
}

// hello sends a server's first message.
func (s *session) hello(attributes ...string) error {
	return s.Send(&checkv1.CheckStreamResponse{Rules: &checkv1.RuleInfo{Version: "v1", Attributes: attributes}})
}

// next returns the checks of the next message.
func (s *session) next() ([]*checkv1.StreamCheck, error) {
	m, err := s.Recv()
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	for _, check := range m.GetChecks() {
		s.fake.seen[check.GetRequest().GetAttributes()["user"]]++
	}
	return m.GetChecks(), err
}

// respond allows all checks. The version is the user's name, so that callers can identify the response.
func (s *session) respond(checks ...*checkv1.StreamCheck) error {
	m := &checkv1.CheckStreamResponse{}
	for _, check := range checks {
		m.Answers = append(m.Answers, &checkv1.StreamAnswer{Id: check.GetId(), Response: &checkv1.CheckResponse{
			Allowed: true, Path: "store", Version: check.GetRequest().GetAttributes()["user"],
		}})
	}
	return s.Send(m)
}

// serve responds until the caller disconnects.
func (s *session) serve() error {
	for {
		checks, err := s.next()
		if err != nil {
			return nil //nolint:nilerr // The caller may disconnect at any time.
		}
		if err := s.respond(checks...); err != nil {
			return err
		}
	}
}

// willing allows all checks of a stream. It is a script.
func willing(_ int, s *session) error {
	if err := s.hello("user"); err != nil {
		return err
	}
	return s.serve()
}

func listen(t testing.TB, server *grpc.Server) string {
	t.Helper()
	return listenOn(t, server, "127.0.0.1:0")
}

func listenOn(t testing.TB, server *grpc.Server, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return l.Addr().String()
}

func newClient(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// by returns a request of a user.
func by(user string) headgate.Request {
	return headgate.Request{Attributes: headgate.Attributes{"user": user}}
}

// check checks a request of a user. An error fails the test: no failure of a server may cause one.
func check(t testing.TB, c *client.Client, user string) headgate.Decision {
	t.Helper()
	d, err := c.Check(context.Background(), by(user))
	if err != nil {
		t.Errorf("check of %s: %v", user, err)
	}
	return d
}

// eventually waits until is returns true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 seconds: %s", what)
		}
	}
}

// journal is a log that tests can read.
type journal struct{ testenv.Log }

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

func (j *journal) count(text string) int { return strings.Count(j.String(), text) }
