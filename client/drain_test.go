package client_test

import (
	"errors"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	checkapi "github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/memstore"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// draining returns the script of a server whose first stream drains when a check of user slow arrives. It responds to that check
// after respond is closed, and sends the error that ended the stream to ended.
func draining(respond <-chan struct{}, ended chan<- error) script {
	return func(n int, s *session) error {
		if n > 1 {
			<-s.Context().Done()
			return nil
		}
		if err := s.hello("user"); err != nil {
			return err
		}
		for {
			checks, err := s.next()
			if err != nil {
				ended <- err
				return err
			}
			if checks[0].GetRequest().GetAttributes()["user"] == "slow" {
				if err := s.Send(&checkv1.CheckStreamResponse{Draining: true}); err != nil {
					return err
				}
				<-respond
			}
			if err := s.respond(checks...); err != nil {
				return err
			}
		}
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	respond, ended := make(chan struct{}), make(chan error, 1)
	old, fresh := newFake(draining(respond, ended)), newFake(willing)
	first, _ := old.start(t)
	second, _ := fresh.start(t)
	var log journal
	c := newClient(t, client.Options{Addresses: []string{first, second}, Timeout: patient, Log: log.logger()})

	eventually(t, "both get checks", func() bool {
		check(t, c, "u")
		_, checks := old.count()
		_, others := fresh.count()
		return checks > 0 && others > 0
	})
	slow := make(chan headgate.Decision, 2)
	for range cap(slow) { // round robin, so that one goes to the draining server
		go func() { slow <- check(t, c, "slow") }()
	}
	eventually(t, "the client knows that the server drains", func() bool { return log.count("draining") == 1 })
	for i := range 100 {
		if d := check(t, c, strconv.Itoa(i)); failed(d) != nil {
			t.Errorf("check %d: %v", i, failed(d))
		}
	}
	close(respond)
	for range cap(slow) {
		if d := <-slow; failed(d) != nil || d.Version != "slow" {
			t.Errorf("check sent before draining: %+v", d)
		}
	}
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v, not by being closed", err)
	}
}

// TestDrainOfOnlyServer tests that a draining server is used until another is available.
func TestDrainOfOnlyServer(t *testing.T) {
	t.Parallel()
	restarted := make(chan struct{})
	ended := make(chan error, 1)
	f := newFake(func(n int, s *session) error {
		if n > 1 {
			select {
			case <-restarted:
			case <-s.Context().Done():
				return nil
			}
			return willing(n, s)
		}
		if err := s.hello("user"); err != nil {
			return err
		}
		if err := s.Send(&checkv1.CheckStreamResponse{Draining: true}); err != nil {
			return err
		}
		for {
			checks, err := s.next()
			if err != nil {
				ended <- err
				return err
			}
			if err := s.respond(checks...); err != nil {
				return err
			}
		}
	})
	address, _ := f.start(t)
	var log journal
	c := newClient(t, client.Options{Addresses: []string{address}, Timeout: patient, Log: log.logger()})
	check(t, c, "u")
	eventually(t, "a new stream is opened", func() bool {
		if err := failed(check(t, c, "u")); err != nil {
			t.Error(err)
		}
		streams, _ := f.count()
		return streams > 1
	})
	close(restarted)
	eventually(t, "the recovery is logged", func() bool { return log.count("server recovered") == 1 })
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the old stream ended with %v", err)
	}
	if err := failed(check(t, c, "u")); err != nil {
		t.Error(err)
	}
}

// node is a real server that can be restarted at its address.
type node struct {
	address string
	service *checkgrpc.Service
	server  *grpc.Server
}

func (n *node) start(t testing.TB, engine checkapi.Engine) {
	t.Helper()
	n.service = checkgrpc.New(engine, checkgrpc.Options{MayRefund: allRefund, Log: slog.New(slog.DiscardHandler)})
	n.server = grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()))
	n.service.Register(n.server)
	if n.address == "" {
		n.address = "127.0.0.1:0"
	}
	n.address = listenOn(t, n.server, n.address)
}

func newLimiter(t testing.TB, rules ...headgate.Rule) *headgate.Limiter {
	t.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{}), rules...)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// load sends checks until it is stopped, and counts those decided by OnFailure.
type load struct {
	stop    chan struct{}
	running sync.WaitGroup
	all     atomic.Int64
	failed  atomic.Int64
}

func newLoad(t testing.TB, c *client.Client) *load {
	l := &load{stop: make(chan struct{})}
	for i := range 16 {
		l.running.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				if failed(check(t, c, strconv.Itoa(i))) != nil {
					l.failed.Add(1)
				}
				l.all.Add(1)
			}
		})
	}
	return l
}

func (l *load) more(t testing.TB) {
	t.Helper()
	until := l.all.Load() + 500
	eventually(t, "500 more checks", func() bool { return l.all.Load() >= until })
}

func (l *load) end() {
	close(l.stop)
	l.running.Wait()
}

func TestRollingRestart(t *testing.T) {
	t.Parallel()
	limiter := newLimiter(t, headgate.Rule{ID: "a", By: []string{"user"}, Limit: headgate.PerSecond(headgate.MaxCost)})
	nodes := []*node{{}, {}}
	var addresses []string
	for _, n := range nodes {
		n.start(t, limiter)
		addresses = append(addresses, n.address)
	}
	var log journal
	c := newClient(t, client.Options{Addresses: addresses, Timeout: patient, Log: log.logger()})
	l := newLoad(t, c)
	for i, n := range nodes {
		l.more(t)
		n.service.Drain()
		n.server.GracefulStop() // returns when all streams are closed
		n.start(t, limiter)
		eventually(t, "the recovery is logged", func() bool { return log.count("server recovered") > i })
	}
	l.more(t)
	l.end()
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d of %d checks were decided by OnFailure", n, l.all.Load())
	}
}

func TestKill(t *testing.T) {
	t.Parallel()
	limiter := newLimiter(t, headgate.Rule{ID: "a", By: []string{"user"}, Limit: headgate.PerSecond(headgate.MaxCost)})
	first, second := &node{}, &node{}
	first.start(t, limiter)
	second.start(t, limiter)
	var log journal
	c := newClient(t, client.Options{
		Addresses: []string{first.address, second.address}, Timeout: patient, Log: log.logger(),
	})
	l := newLoad(t, c)
	l.more(t)
	first.server.Stop()
	eventually(t, "the failure is logged", func() bool { return log.count("server unavailable") == 1 })
	l.more(t) // wait until the pending checks are counted
	lost := l.failed.Load()
	if lost > 16 {
		t.Errorf("%d checks were lost, more than were pending", lost)
	}
	l.more(t)
	if now := l.failed.Load(); now != lost {
		t.Errorf("%d checks were lost later", now-lost)
	}
	first.start(t, limiter)
	eventually(t, "the recovery is logged", func() bool { return log.count("server recovered") == 1 })
	l.more(t)
	l.end()
	if now := l.failed.Load(); now != lost {
		t.Errorf("%d checks were lost later", now-lost)
	}
}
