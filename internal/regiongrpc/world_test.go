package regiongrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually polls until f is true. The bound is only for a test that would fail anyway.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// lender counts loan requests, and lends as many units as are requested.
type lender struct {
	calls  atomic.Int64
	before atomic.Pointer[func()] // called for each request, if not nil
}

func (l *lender) Lend(_ context.Context, r region.LoanRequest) region.Loan {
	l.calls.Add(1)
	if f := l.before.Load(); f != nil {
		(*f)()
	}
	return region.Loan{Units: r.Units, Left: 7}
}

// identity is a certificate with authorities, which a test may replace.
type identity struct {
	current atomic.Pointer[tls.Certificate]
	trusted atomic.Pointer[x509.CertPool]
}

func (i *identity) use(c, ca *testenv.Certificate) {
	i.current.Store(&c.Certificate)
	i.trusted.Store(ca.Pool)
}

func (i *identity) certificates() (tls.Certificate, *x509.CertPool) {
	return *i.current.Load(), i.trusted.Load()
}

// The hosts of the regions. Each has an address of its own on the loopback interface, so that certificates differ.
const (
	euHost = "127.0.0.2"
	usHost = "127.0.0.3"
	apHost = "127.0.0.4"
)

func newAuthority(t *testing.T) *testenv.Certificate {
	return testenv.NewCertificate(t, nil, &x509.Certificate{})
}

func certificateFor(t *testing.T, ca *testenv.Certificate, hosts ...string) *testenv.Certificate {
	t.Helper()
	template := &x509.Certificate{}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return testenv.NewCertificate(t, ca, template)
}

// world has two regions: eu calls us, which serves.
type world struct {
	ca         *testenv.Certificate
	eu, us     *Network
	euID, usID identity
	lender     *lender
	home       *home
	log        testenv.Log // of both
	listener   net.Listener
}

// newWorld starts us. eu calls it at the address, or directly if that is empty. change, if not nil, may change the options.
func newWorld(t *testing.T, address string, change func(eu, us *Options)) *world {
	t.Helper()
	w := &world{ca: newAuthority(t), lender: &lender{}, home: &home{}}
	w.euID.use(certificateFor(t, w.ca, euHost), w.ca)
	w.usID.use(certificateFor(t, w.ca, usHost), w.ca)
	w.listener = listen(t, usHost+":0")
	if address == "" {
		address = w.listener.Addr().String()
	}
	members := []Member{{"ap", apHost + ":1"}, {"eu", euHost + ":1"}, {"us", address}}
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	clock := func(context.Context) (time.Time, error) { return time.Now(), nil }
	eu := Options{Own: "eu", Members: members, Epoch: 7, Version: "v1", Certificates: w.euID.certificates, StoreTime: clock, Log: log}
	us := Options{Own: "us", Members: members, Epoch: 7, Version: "v2", Certificates: w.usID.certificates, StoreTime: clock, Log: log}
	if change != nil {
		change(&eu, &us)
	}
	w.eu, w.us = newNetwork(t, eu), newNetwork(t, us)
	serve(t, w.us, w.listener, w.lender, w.home)
	return w
}

// call makes eu call us at another address, and no other region.
func (w *world) call(t *testing.T, address string) {
	t.Helper()
	o := w.eu.options
	o.Members = []Member{{"eu", euHost + ":1"}, {"us", address}}
	w.eu = newNetwork(t, o)
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	testenv.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newNetwork(t *testing.T, o Options) *Network {
	t.Helper()
	n, err := New(o)
	testenv.NoError(t, err)
	n.usageTimeout, n.creditTimeout = time.Minute, time.Minute // a machine may stall
	t.Cleanup(n.Close)
	return n
}

func serve(t *testing.T, n *Network, l net.Listener, lender Lender, home Home) *grpc.Server {
	t.Helper()
	server := grpc.NewServer(n.ServerOptions()...)
	n.Register(server, lender, home)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return server
}

// run runs a network until the test ends.
func run(t *testing.T, n *Network) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// borrow requests units from us once.
func (w *world) borrow(t *testing.T, timeout time.Duration) (region.Loan, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	a := requests(t)[0]
	a.From = "eu"
	return w.eu.Links()["us"].Lend(ctx, a)
}

// awaitLoan requests units until us lends.
func (w *world) awaitLoan(t *testing.T) {
	t.Helper()
	eventually(t, "a loan", func() bool {
		_, err := w.borrow(t, time.Second)
		return err == nil
	})
}

// toUS returns the state of us as eu knows it.
func (w *world) toUS() State {
	for _, s := range w.eu.State() {
		if s.Peer == "us" {
			return s
		}
	}
	return State{}
}
