package regiongrpc

import (
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/testenv"
)

// TestLend checks that a loan request and a loan arrive as they were sent, with the deadline.
func TestLend(t *testing.T) {
	t.Parallel()
	got := make(chan region.LoanRequest, 1)
	var deadline atomic.Bool
	w := newWorld(t, "", nil)
	l := listen(t, usHost+":0")
	serve(t, w.us, l, lendFunc(func(ctx context.Context, r region.LoanRequest) region.Loan {
		until, ok := ctx.Deadline()
		deadline.Store(ok && time.Until(until) <= 10*time.Second)
		got <- r
		return region.Loan{Units: r.Units, Left: math.MaxInt64}
	}), w.home)
	w.call(t, l.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	sent := requests(t)[0]
	loan, err := w.eu.Links()["us"].Lend(ctx, sent)
	testenv.NoError(t, err)
	if loan != (region.Loan{Units: sent.Units, Left: math.MaxInt64}) || <-got != sent || !deadline.Load() {
		t.Errorf("loan %+v; deadline: %v", loan, deadline.Load())
	}
}

type lendFunc func(ctx context.Context, r region.LoanRequest) region.Loan

func (f lendFunc) Lend(ctx context.Context, r region.LoanRequest) region.Loan { return f(ctx, r) }

// TestUnlendable checks that an invalid request is rejected, and does not reach the store.
func TestUnlendable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	a := requests(t)[0]
	a.From, a.Units = "eu", -1
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	loan, err := w.eu.Links()["us"].Lend(ctx, a)
	if want := (region.Loan{Rejection: region.Unlendable}); err != nil || loan != want || w.lender.calls.Load() != 0 {
		t.Errorf("%+v, %v; %d loan requests reached the store", loan, err, w.lender.calls.Load())
	}
}

// TestOnce drops the connection while a loan request is executed, or after: it is not executed again.
func TestOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	proxy := newProxy(t, usHost, w.listener.Addr().String())
	w.call(t, proxy.address)
	run(t, w.eu)
	w.awaitLoan(t)
	drop := proxy.drop
	w.lender.before.Store(&drop)
	const times = 20
	before := w.lender.calls.Load()
	sent := int64(0)
	for w.lender.calls.Load() < before+times {
		reached := w.lender.calls.Load()
		if loan, err := w.borrow(t, 5*time.Second); err == nil {
			t.Errorf("a loan of %+v without a connection", loan)
		}
		sent++
		if now := w.lender.calls.Load(); now > reached+1 {
			t.Fatalf("a loan request was executed %d times", now-reached)
		}
		if sent > 1000 {
			t.Fatal("loan requests do not reach the region")
		}
	}
	w.lender.before.Store(nil)
	w.awaitLoan(t)
}

// TestPartition cuts the network so that nothing arrives and no connection is closed, and heals it.
func TestPartition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	proxy := newProxy(t, usHost, w.listener.Addr().String())
	w.call(t, proxy.address)
	run(t, w.eu)
	w.awaitLoan(t)
	eventually(t, "us is up", func() bool { return w.toUS().Up })
	for range 2 {
		proxy.stall(true)
		executed := w.lender.calls.Load()
		for range 5 {
			if loan, err := w.borrow(t, 200*time.Millisecond); err == nil {
				t.Errorf("a loan of %+v through a cut network", loan)
			}
		}
		eventually(t, "us is down", func() bool { return !w.toUS().Up })
		s := w.toUS()
		if s.Problem == "" || s.LastContact.IsZero() {
			t.Errorf("the state is %+v", s)
		}
		proxy.stall(false)
		healed, sent := time.Now(), int64(0)
		eventually(t, "a loan after the network has healed", func() bool {
			sent++
			_, err := w.borrow(t, time.Second)
			return err == nil
		})
		t.Logf("the first loan %s after the network has healed", time.Since(healed))
		if got := w.lender.calls.Load() - executed; got > sent {
			t.Errorf("%d loan requests were executed of %d that were sent since the network has healed", got, sent)
		}
		eventually(t, "us is up again", func() bool { return w.toUS().Up })
	}
	log := w.log.String()
	lost, recovered := strings.Count(log, "region unreachable"), strings.Count(log, "region recovered")
	// A machine that stalls may make us unreachable once more.
	if strings.Count(log, "region connected") > 1 || lost < 2 || lost != recovered {
		t.Errorf("%d times unreachable and %d times recovered:\n%s", lost, recovered, log)
	}
}

// TestSeveralServers spreads loan requests over the servers of a region, and uses the others if one dies.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	first := listen(t, "127.0.0.3:0")
	_, port, _ := net.SplitHostPort(first.Addr().String())
	w := newWorld(t, "us.example:"+port, nil)
	w.usID.use(certificateFor(t, w.ca, "us.example"), w.ca)
	var dead atomic.Bool // the name server
	dead.Store(true)
	w.eu.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		if dead.Load() || host != "us.example" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.6"), netip.MustParseAddr("127.0.0.3")}, nil
	}
	run(t, w.eu)
	eventually(t, "the failed lookup is shown", func() bool { return strings.Contains(w.toUS().Problem, "no such host") })
	if _, err := w.borrow(t, 10*time.Second); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("asked before the name is known: %v", err)
	}
	dead.Store(false)
	lenders := []*lender{{}, {}}
	serve(t, w.us, first, lenders[0], w.home)
	second := serve(t, w.us, listen(t, "127.0.0.6:"+port), lenders[1], w.home)
	eventually(t, "both servers have lent", func() bool {
		_, _ = w.borrow(t, time.Second)
		return lenders[0].calls.Load() > 3 && lenders[1].calls.Load() > 3
	})
	second.Stop()
	for inARow := 0; inARow < 10; {
		if _, err := w.borrow(t, time.Second); err != nil {
			inARow = 0
		}
		inARow++
	}
	eventually(t, "us is up", func() bool { return w.toUS().Up })
}

func TestState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", func(_, us *Options) {
		us.Epoch = 8
		us.StoreTime = func(context.Context) (time.Time, error) { return time.Now().Add(time.Hour), nil }
	})
	run(t, w.eu)
	run(t, w.us)
	eventually(t, "clocks are compared", func() bool { return w.toUS().ClockKnown })
	eventually(t, "eu has called several times", func() bool { return time.Since(w.toUS().LastContact) > 0 && w.toUS().RTT > 0 })
	s := w.toUS()
	if !s.Up || !s.OtherMembers || s.Region != "us" || s.Version != "v2" || s.ClockAhead.Round(10*time.Minute) != time.Hour ||
		!strings.Contains(s.Problem, "regions.members") {
		t.Errorf("the state is %+v", s)
	}
	eventually(t, "ap is down, and eu for us", func() bool { return strings.Count(w.log.String(), "region unreachable") >= 3 })
	log := w.log.String()
	recovered := strings.Count(log, "region recovered") // on a machine that stalls
	if n := strings.Count(log, "other members or weights"); n < 1 || n > 1+recovered || strings.Count(log, "region connected") != 1 {
		t.Errorf("the log is\n%s", log)
	}
	if states := w.eu.State(); len(states) != 2 || states[0].Peer != "ap" || states[0].Up || states[0].Problem == "" || !states[0].LastContact.IsZero() {
		t.Errorf("the states are %+v", states)
	}
}

// TestOtherRegion checks that an address that leads to another region is noticed.
func TestOtherRegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", func(_, us *Options) { us.Own = "ap" })
	run(t, w.eu)
	eventually(t, "the problem is shown", func() bool { return strings.Contains(w.toUS().Problem, `leads to region "ap"`) })
	if log := w.log.String(); strings.Count(log, "another region responds") != 1 {
		t.Errorf("the log is\n%s", log)
	}
}

// TestUnknownClock checks that clocks are not compared while a store is unavailable.
func TestUnknownClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", func(_, us *Options) {
		us.StoreTime = func(context.Context) (time.Time, error) { return time.Time{}, errors.New("unavailable") }
	})
	run(t, w.eu)
	run(t, w.us)
	eventually(t, "us is up", func() bool { return w.toUS().Up })
	if s := w.toUS(); s.ClockKnown || s.ClockAhead != 0 {
		t.Errorf("the state is %+v", s)
	}
}

func TestBadAddress(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Own: "eu", Members: []Member{{"us", "us.example:1"}, {"ap", "ap.example"}}})
	if err == nil || !strings.Contains(err.Error(), `regions: member ap: address "ap.example": write host:port`) {
		t.Errorf("the error is %v", err)
	}
}

// proxy forwards TCP connections.
type proxy struct {
	address string
	mu      sync.Mutex
	stalled bool
	pairs   []*pair
}

// pair is a connection to the proxy with the one that it is forwarded to.
type pair struct {
	in, out net.Conn
	dead    atomic.Bool // nothing arrives, and neither end knows
}

func newProxy(t *testing.T, host, to string) *proxy {
	t.Helper()
	l := listen(t, host+":0")
	p := &proxy{address: l.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			both := &pair{in: in, out: out}
			p.mu.Lock()
			both.dead.Store(p.stalled)
			p.pairs = append(p.pairs, both)
			p.mu.Unlock()
			running.Go(func() { both.forward(in, out) })
			running.Go(func() { both.forward(out, in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.drop()
		running.Wait()
	})
	return p
}

// forward copies data. If the pair is dead, it drops them.
func (c *pair) forward(from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		switch {
		case c.dead.Load() && err != nil:
			return
		case c.dead.Load():
			continue
		case err == nil:
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

// stall cuts the network, or heals it. The connections that were open while it was cut stay dead.
func (p *proxy) stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = on
	for _, c := range p.pairs {
		c.dead.Store(c.dead.Load() || on)
	}
}

// drop closes all connections.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.pairs {
		_, _ = c.in.Close(), c.out.Close()
	}
	p.pairs = nil
}
