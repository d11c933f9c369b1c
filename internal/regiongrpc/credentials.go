package regiongrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/headgate/headgate/internal/netaddr"
)

// clientCredentials are the credentials of connections to a peer. Each handshake uses the current certificates.
type clientCredentials struct {
	credentials.TransportCredentials // for everything but the handshake
	link                             *link
}

func (c *clientCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	certificate, authorities := c.link.network.certificates()
	conn, info, err := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, RootCAs: authorities, ServerName: c.link.host,
	}).ClientHandshake(ctx, authority, raw)
	if err == nil {
		c.link.connections.handshake(certificate.Leaf)
	}
	return conn, info, err
}

func (c *clientCredentials) Clone() credentials.TransportCredentials {
	return &clientCredentials{c.TransportCredentials.Clone(), c.link}
}

// certificates returns the current certificate and authorities. Without authorities no certificate is valid: package x509 would trust
// those of the operating system.
func (n *Network) certificates() (tls.Certificate, *x509.CertPool) {
	certificate, authorities := n.options.Certificates()
	if authorities == nil {
		authorities = x509.NewCertPool()
	}
	return certificate, authorities
}

// serverCredentials are the credentials of connections from other regions. A handshake without a valid certificate fails, so that only
// members reach the service.
type serverCredentials struct {
	credentials.TransportCredentials // for everything but the handshake
	network                          *Network
}

func (s *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	certificate, authorities := s.network.certificates()
	c := &caller{}
	conn, info, err := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true,
		// Package tls has no hook for rejected clients. So it only requests the certificate, and VerifyConnection verifies it.
		ClientAuth: tls.RequestClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			c.certificates = state.PeerCertificates
			err := c.verify(authorities)
			if err != nil {
				s.network.reject(context.Background(), raw.RemoteAddr(), c, "", "error", err)
			}
			return err
		},
	}).ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	c.AuthInfo = info
	return conn, c, nil
}

func (s *serverCredentials) Clone() credentials.TransportCredentials {
	return &serverCredentials{s.TransportCredentials.Clone(), s.network}
}

// reject logs a caller that is not authorized, at most once per rejectedEvery for an address and what it claims to be.
func (n *Network) reject(ctx context.Context, remote net.Addr, c *caller, claims string, args ...any) {
	from := netaddr.PeerName(remote.String())
	args = append([]any{"peer", from, "certificate", c.names()}, args...)
	n.rejected.Log(ctx, n.options.Log, slog.LevelWarn, from+" "+claims,
		"region rejected; it borrows nothing here until it has a certificate of regions.tls.ca_file for the host of its address in regions.members", args...)
}

// caller is a server of another region, as its connection authenticates it.
type caller struct {
	credentials.AuthInfo
	certificates []*x509.Certificate
	verified     atomic.Pointer[verification]
}

// verification is that a certificate was signed by authorities, and is valid until a time.
type verification struct {
	authorities *x509.CertPool
	until       time.Time
}

// verify checks the certificate against the authorities. A result is used again, because a verification takes as long as a hundred calls.
func (c *caller) verify(authorities *x509.CertPool) error {
	if v := c.verified.Load(); v != nil && v.authorities == authorities && time.Now().Before(v.until) {
		return nil
	}
	if len(c.certificates) == 0 {
		return errors.New("no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range c.certificates[1:] {
		intermediates.AddCert(certificate)
	}
	chains, err := c.certificates[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	until := c.certificates[0].NotAfter
	for _, certificate := range chains[0] {
		if certificate.NotAfter.Before(until) {
			until = certificate.NotAfter
		}
	}
	c.verified.Store(&verification{authorities, until})
	return nil
}

// names returns the names in the certificate.
func (c *caller) names() []string {
	if len(c.certificates) == 0 {
		return nil
	}
	leaf := c.certificates[0]
	names := append([]string{}, leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}
