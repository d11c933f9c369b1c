package regiongrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/testenv"
	regionv1 "github.com/headgate/headgate/proto/headgate/region/v1"
)

// TestAuthentication calls us with certificates and claims of all kinds.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		certificate func(ca *testenv.Certificate) *testenv.Certificate
		claims      string
		oldTLS      bool
		want        codes.Code
		logged      []string
	}{
		"right": {claims: "eu"},
		"no certificate": {
			certificate: func(*testenv.Certificate) *testenv.Certificate { return nil },
			claims:      "eu", want: codes.Unavailable, logged: []string{"certificate=[]", "no certificate"},
		},
		"other authority": {
			certificate: func(*testenv.Certificate) *testenv.Certificate { return certificateFor(t, newAuthority(t), euHost) },
			claims:      "eu", want: codes.Unavailable, logged: []string{"[" + euHost + " 127.0.0.1]", "unknown authority"},
		},
		"expired": {
			certificate: func(ca *testenv.Certificate) *testenv.Certificate {
				return testenv.NewCertificate(t, ca, &x509.Certificate{IPAddresses: []net.IP{net.ParseIP(euHost)}, NotAfter: time.Unix(1, 0)})
			},
			claims: "eu", want: codes.Unavailable, logged: []string{"expired"},
		},
		"TLS 1.2": {oldTLS: true, claims: "eu", want: codes.Unavailable},
		"other host": {
			certificate: func(ca *testenv.Certificate) *testenv.Certificate {
				return certificateFor(t, ca, "127.0.0.9", "other.example")
			},
			claims: "eu", want: codes.PermissionDenied, logged: []string{"other.example 127.0.0.9 127.0.0.1", `claims="\"eu\""`, "host=" + euHost},
		},
		"another member":   {claims: "ap", want: codes.PermissionDenied, logged: []string{"[" + euHost + " 127.0.0.1]", "host=" + apHost}},
		"the callee":       {claims: "us", want: codes.PermissionDenied, logged: []string{"is the name of this region"}},
		"no member":        {claims: "mars", want: codes.PermissionDenied, logged: []string{"is not a member"}},
		"no name":          {claims: "", want: codes.PermissionDenied, logged: []string{"is not a member"}},
		"an absurd member": {claims: strings.Repeat("x\n", 1000), want: codes.PermissionDenied, logged: []string{"is not a member"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "", nil)
			config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: w.ca.Pool, ServerName: usHost}
			if test.oldTLS {
				config.MaxVersion = tls.VersionTLS12
			}
			certificate := certificateFor(t, w.ca, euHost)
			if test.certificate != nil {
				certificate = test.certificate(w.ca)
			}
			if certificate != nil {
				config.Certificates = []tls.Certificate{certificate.Certificate}
			}
			conn, err := grpc.NewClient(w.listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
			testenv.NoError(t, err)
			defer conn.Close()
			client := regionv1.NewRegionServiceClient(conn)
			m := messageOf(&requests(t)[0])
			m.From = test.claims
			for range 3 {
				_, err = client.Hello(t.Context(), &regionv1.HelloRequest{From: test.claims})
				if got := status.Code(err); got != test.want {
					t.Errorf("hello: %v, want %s", err, test.want)
				}
				_, err = client.Lend(t.Context(), m)
				if got := status.Code(err); got != test.want {
					t.Errorf("lend: %v, want %s", err, test.want)
				}
			}
			if got := w.lender.calls.Load(); (got > 0) != (test.want == codes.OK) {
				t.Errorf("%d loan requests were answered", got)
			}
			log := w.log.String()
			if want := min(len(test.logged), 1); strings.Count(log, "region rejected") != want || len(log) > 1500 {
				t.Errorf("want %d short lines in the log:\n%s", want, log)
			}
			for _, part := range test.logged {
				if !strings.Contains(log, part) {
					t.Errorf("%q is not in the log:\n%s", part, log)
				}
			}
		})
	}
}

// TestServerVerified checks that a region does not talk to a server that is not the peer's.
func TestServerVerified(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	tests := map[string]*testenv.Certificate{
		"other host":      certificateFor(t, w.ca, apHost),
		"other authority": certificateFor(t, newAuthority(t), usHost),
	}
	for name, certificate := range tests {
		w.usID.use(certificate, w.ca)
		w.call(t, w.listener.Addr().String()) // anew: a connection may exist
		if loan, err := w.borrow(t, time.Second); err == nil {
			t.Errorf("%s: %+v from a server that is not the peer's", name, loan)
		}
	}
	w.usID.use(certificateFor(t, w.ca, usHost), w.ca)
	w.awaitLoan(t)
}

// TestReload replaces the authority of both regions, one after the other, while they are connected.
func TestReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", nil)
	run(t, w.eu)
	w.awaitLoan(t)
	next := newAuthority(t)
	w.usID.use(certificateFor(t, next, usHost), next)
	if _, err := w.borrow(t, 10*time.Second); status.Code(err) != codes.PermissionDenied {
		t.Errorf("after its authority was removed, eu gets %v", err)
	}
	w.euID.use(certificateFor(t, next, euHost), next)
	w.awaitLoan(t)
	eventually(t, "us is up", func() bool { return w.toUS().Up })
}

// TestVerifiedOnce checks that a certificate is not verified for each call, but again if it expires.
func TestVerifiedOnce(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	short := testenv.NewCertificate(t, ca, &x509.Certificate{NotAfter: time.Now().Add(time.Hour)})
	c := &caller{certificates: []*x509.Certificate{short.Leaf}}
	testenv.NoError(t, c.verify(ca.Pool))
	first := c.verified.Load()
	testenv.NoError(t, c.verify(ca.Pool))
	if c.verified.Load() != first || !first.until.Equal(short.Leaf.NotAfter) {
		t.Errorf("verified again, or until %s", first.until)
	}
	if c.verify(newAuthority(t).Pool) == nil {
		t.Error("valid for another authority")
	}
	c.verified.Store(&verification{ca.Pool, time.Unix(1, 0)})
	c.certificates[0] = testenv.NewCertificate(t, ca, &x509.Certificate{NotAfter: time.Unix(1, 0)}).Leaf
	if c.verify(ca.Pool) == nil {
		t.Error("valid after it expired")
	}
}

// TestNoAuthorities checks that the authorities of the operating system do not matter.
func TestNoAuthorities(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", func(eu, _ *Options) {
		own := eu.Certificates
		eu.Certificates = func() (tls.Certificate, *x509.CertPool) { c, _ := own(); return c, nil }
	})
	if _, pool := w.eu.certificates(); pool == nil || !pool.Equal(x509.NewCertPool()) {
		t.Error("other authorities")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := w.eu.Links()["us"].Lend(ctx, requests(t)[0]); err == nil {
		t.Error("connected without authorities")
	}
}
