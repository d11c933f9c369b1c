// Package regiongrpc connects the servers of several regions over gRPC with mutual TLS: it carries loan requests, loans and charges of package
// region, and keeps track of which regions can be reached.
//
// It knows who may borrow and charge, but not what is lent or granted: the store of a region decides that.
package regiongrpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelog"
	"github.com/headgate/headgate/internal/region"
)

const (
	// maxMessage is the maximum size of a message; a loan request takes about 100 bytes, and so does each charge of maxCharges.
	maxMessage = 256 << 10
	// maxCalls is the maximum number of concurrent calls on one connection. A server has at most 256 loan requests and 1,024 charges in flight.
	maxCalls = 1_536
	// maxConnectionAge is how long a connection with its certificates is used. It also spreads the load over servers that were added.
	maxConnectionAge = 5 * time.Minute
	// rejectedEvery is the interval between log lines about the same caller that was rejected.
	rejectedEvery = 10 * time.Minute
)

// Member is a region, and the address of its servers: host:port, where the host may have several IP addresses.
type Member struct{ Name, Address string }

// Options are the parameters of a Network.
type Options struct {
	// Own is the name of this region, which is one of Members.
	Own     string
	Members []Member
	// Epoch identifies the members, their weights and the secret, and Subjects only the secret.
	Epoch, Subjects uint64
	// Version is the version of this server.
	Version string
	// Certificates returns the certificate of this server, and the authorities of the certificates of all regions. They are used for
	// the next handshake, and the authorities for the next call.
	Certificates func() (tls.Certificate, *x509.CertPool)
	// StoreTime returns the time of this region's store.
	StoreTime func(context.Context) (time.Time, error)
	Log       *slog.Logger
}

// Network is this server's connections with other regions. Run keeps them up; Links and Register use them.
type Network struct {
	options  Options
	hosts    map[string]string // by member
	links    []*link
	clock    clock
	counters Counters // nil if operators of other regions may not read them
	// usageTimeout and creditTimeout are the constants, except in tests.
	usageTimeout, creditTimeout time.Duration
	rejected                    ratelog.Limiter
	lookup                      func(ctx context.Context, host string) ([]netip.Addr, error)
}

// New returns the network of a server. It connects in the background.
func New(o Options) (*Network, error) {
	n := &Network{
		options: o, hosts: map[string]string{}, rejected: ratelog.Limiter{Every: rejectedEvery}, lookup: lookup,
		usageTimeout: usageTimeout, creditTimeout: creditTimeout,
	}
	for _, m := range o.Members {
		host, port, err := net.SplitHostPort(m.Address)
		if err != nil {
			n.Close()
			return nil, fmt.Errorf("regions: member %s: address %q: write host:port: %w", m.Name, m.Address, err)
		}
		n.hosts[m.Name] = host
		if m.Name == o.Own {
			continue
		}
		p, err := newLink(n, m, host, port)
		if err != nil {
			n.Close()
			return nil, fmt.Errorf("regions: member %s: address %q: %w", m.Name, m.Address, err)
		}
		n.links = append(n.links, p)
	}
	return n, nil
}

func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// Run calls all peers once a second until ctx ends.
func (n *Network) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { every(ctx, helloEvery, func() { n.clock.measure(ctx, n.options.StoreTime) }) })
	for _, p := range n.links {
		running.Go(func() { every(ctx, lookupEvery, func() { p.resolve(ctx) }) })
		running.Go(func() { every(ctx, helloEvery, func() { p.beat(ctx) }) })
	}
	running.Wait()
}

// every calls f now and then at intervals, until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		f()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// Close closes the connections to other regions.
func (n *Network) Close() {
	for _, p := range n.links {
		_ = p.conn.Close() // it fails only if it is closed already
	}
}

// Links returns the links to the other regions, by name.
func (n *Network) Links() map[string]region.Link {
	links := map[string]region.Link{}
	for _, p := range n.links {
		links[p.member.Name] = p
	}
	return links
}

// Homes returns the other regions as stores, by name, for charges on subjects whose homes they are.
func (n *Network) Homes() map[string]headgate.Store {
	homes := map[string]headgate.Store{}
	for _, p := range n.links {
		homes[p.member.Name] = p
	}
	return homes
}

// State returns the state of each peer, in the order of the members.
func (n *Network) State() []State {
	states := make([]State, 0, len(n.links))
	for _, p := range n.links {
		states = append(states, p.currentState())
	}
	return states
}

// ServerOptions returns the options of a gRPC server for other regions. They include TLS.
func (n *Network) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(&serverCredentials{TransportCredentials: credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13}), network: n}),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: maxConnectionAge, MaxConnectionAgeGrace: maxLendTime, Time: 10 * time.Second, Timeout: 5 * time.Second,
		}),
	}
}
