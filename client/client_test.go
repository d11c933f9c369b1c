package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// TestAttributes tests that Attributes waits for the servers, merges their attributes and follows changes.
func TestAttributes(t *testing.T) {
	t.Parallel()
	changed := make(chan struct{})
	first, _ := newFake(func(_ int, s *session) error {
		if err := s.hello("ip", "header.x-rows"); err != nil {
			return err
		}
		<-changed
		if err := s.hello(); err != nil {
			return err
		}
		return s.serve()
	}).start(t)
	second, _ := newFake(func(_ int, s *session) error {
		if err := s.hello("ip", "claim.plan"); err != nil {
			return err
		}
		return s.serve()
	}).start(t)
	c := newClient(t, client.Options{Addresses: []string{first}, Timeout: patient})
	if names := c.Attributes(); !slices.Equal(names, []string{"header.x-rows", "ip"}) {
		t.Errorf("attributes %q", names)
	}
	both := newClient(t, client.Options{Addresses: []string{first, second}, Timeout: patient})
	eventually(t, "both are known", func() bool {
		return slices.Equal(both.Attributes(), []string{"claim.plan", "header.x-rows", "ip"})
	})
	close(changed)
	eventually(t, "there are none", func() bool { return len(c.Attributes()) == 0 })
	eventually(t, "there are those of the second", func() bool {
		return slices.Equal(both.Attributes(), []string{"claim.plan", "ip"})
	})
}

func TestAttributesWithoutServer(t *testing.T) {
	t.Parallel()
	silent, _ := newFake(func(_ int, s *session) error {
		<-s.Context().Done()
		return nil
	}).start(t)
	for _, o := range []client.Options{
		{Addresses: []string{"127.0.0.1:1"}, Timeout: patient},
		{Addresses: []string{silent}, Timeout: 20 * time.Millisecond},
	} {
		c := newClient(t, o)
		for range 2 {
			if names := c.Attributes(); !slices.Equal(names, headgate.BuiltIn()) {
				t.Errorf("attributes %q", names)
			}
		}
	}
}

// TestLateServer starts a server after the client has found it unavailable.
func TestLateServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	var log journal
	c := newClient(t, client.Options{Addresses: []string{address}, Log: log.logger()})
	eventually(t, "the server is logged as unavailable", func() bool { return log.count("server unavailable") == 1 })
	server := grpc.NewServer()
	checkv1.RegisterCheckServiceServer(server, newFake(willing))
	listenOn(t, server, address)
	eventually(t, "checks are decided", func() bool { return failed(check(t, c, "u")) == nil })
}

// TestBytes sends values that are not UTF-8. They must not break the stream, and different values must stay different subjects.
func TestBytes(t *testing.T) {
	t.Parallel()
	limiter := newLimiter(t, headgate.Rule{ID: "a", By: []string{"user"}, Limit: headgate.PerDay(1)})
	var n node
	n.start(t, limiter)
	var log journal
	c := newClient(t, client.Options{Addresses: []string{n.address}, Timeout: patient, Log: log.logger()})
	for _, user := range []string{"M\xfcller", "M\xf6ller", "Müller", "M\xfc", "\xfc"} {
		first, second := check(t, c, user), check(t, c, user)
		if failed(first) != nil || failed(second) != nil || !first.Allowed || second.Allowed {
			t.Errorf("%q: %+v, then %+v", user, first, second)
		}
	}
	if log.count("unavailable") > 0 {
		t.Error("the stream broke")
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certificate := testenv.NewCertificate(t, nil, &x509.Certificate{})
	pool, own := certificate.Pool, []tls.Certificate{certificate.Certificate}
	server := grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()), grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: own, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		MinVersion: tls.VersionTLS13,
	})))
	checkgrpc.New(newLimiter(t), checkgrpc.Options{}).Register(server)
	address := listen(t, server)
	for _, test := range []struct {
		name string
		tls  *tls.Config
		ok   bool
	}{
		{"with a certificate", &tls.Config{RootCAs: pool, Certificates: own, MinVersion: tls.VersionTLS13}, true},
		{"without one", &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, false},
		{"plain text", nil, false},
	} {
		c := newClient(t, client.Options{Addresses: []string{address}, Timeout: patient, TLS: test.tls})
		if err := failed(check(t, c, "u")); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
