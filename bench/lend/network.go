package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/regiongrpc"
	"github.com/headgate/headgate/internal/testenv"
)

// connection is a connection between the regions over loopback, as servers have it.
type connection struct {
	link  region.Link
	bytes atomic.Int64 // in both directions, with TLS and without TCP/IP
}

// connect makes eu call us.
func connect(s *paired.Suite, w *world) *connection {
	ca := testenv.NewCertificate(s, nil, &x509.Certificate{})
	certificate := testenv.NewCertificate(s, ca, &x509.Certificate{})
	c := &connection{}
	listener, err := (&net.ListenConfig{}).Listen(s.Context(), "tcp", "127.0.0.1:0")
	testenv.NoError(s, err)
	network := func(own string) *regiongrpc.Network {
		n, err := regiongrpc.New(regiongrpc.Options{
			Own: own, Epoch: w.shares.Epoch(), Version: "bench", Log: slog.New(slog.DiscardHandler),
			Members:      []regiongrpc.Member{{Name: "eu", Address: "127.0.0.1:1"}, {Name: "us", Address: listener.Addr().String()}},
			Certificates: func() (tls.Certificate, *x509.CertPool) { return certificate.Certificate, ca.Pool },
			StoreTime:    func(context.Context) (time.Time, error) { return time.Now(), nil },
		})
		testenv.NoError(s, err)
		s.Cleanup(n.Close)
		return n
	}
	eu, us := network("eu"), network("us")
	server := grpc.NewServer(us.ServerOptions()...)
	us.Register(server, w.us, region.NewHomeStore(w.us, w.shares))
	go func() { _ = server.Serve(counted{listener, &c.bytes}) }()
	s.Cleanup(server.Stop)
	c.link = eu.Links()["us"]
	return c
}

// counted is a listener whose connections count what they transfer.
type counted struct {
	net.Listener
	bytes *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countedConn{conn, l.bytes}, err
}

type countedConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.bytes.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}
