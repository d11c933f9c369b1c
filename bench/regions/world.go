package main

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/regionjudge"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/bench/internal/wan"
	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const (
	nodesPerRegion = 2
	regionsPort    = "8084"
	// jitter is the mean of what the network delays packets in addition, at random.
	jitter = 500 * time.Microsecond
	// storeDeadline is longer than the default, because three regions share a machine.
	storeDeadline = 500 * time.Millisecond
)

// names are those of the regions.
var names = []string{"eu", "us", "ap"}

// oneWay returns the delay from one region to another.
func oneWay(from, to string) time.Duration {
	switch {
	case from != "ap" && to != "ap":
		return 40 * time.Millisecond
	case from == "us" || to == "us":
		return 75 * time.Millisecond
	default:
		return 110 * time.Millisecond
	}
}

// world is three regions.
type world struct {
	*suite.Scope
	plan    *plan
	program string // headgate
	network *wan.Network
	regions []*region
	losses  []regionjudge.Loss
}

type region struct {
	name  string
	place *testenv.Place
	store *store
	nodes []*node
}

// node is one headgate serve.
type node struct {
	*fleet.Node
	checks checkv1.CheckServiceClient
}

func newWorld(scope *suite.Scope, program string, p *plan) *world {
	w := &world{Scope: scope, plan: p, program: program}
	w.network = wan.Start(scope, wan.Options{Seed: p.seed, Regions: names, OneWay: oneWay, Jitter: jitter})
	ca := testenv.NewCertificate(scope, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "regions"}})
	for i, name := range names {
		place := w.network.Place(name)
		r := &region{name: name, place: place, store: newStore(scope, p.stores[i], place, p.skews[i])}
		w.regions = append(w.regions, r)
		w.startNodes(r, ca)
	}
	return w
}

// startNodes starts the servers of a region, with the load balancer in front of them.
func (w *world) startNodes(r *region, ca *testenv.Certificate) {
	address := w.network.Address(r.name)
	certificate := testenv.NewCertificate(w, ca, &x509.Certificate{
		Subject: pkix.Name{CommonName: r.name}, DNSNames: []string{r.name}, IPAddresses: []net.IP{net.ParseIP(address)},
	})
	files := map[string]string{
		"rules.yaml": w.document(), "cert.pem": certificate.CertPEM, "key.pem": certificate.KeyPEM, "ca.pem": ca.CertPEM,
	}
	b := &balancer{place: r.place}
	for range nodesPerRegion {
		o := fleet.Options{Place: r.place}
		config := fmt.Sprintf("redis: {address: %q, deadline: %v}\nrules: rules.yaml\nnodes: %d\n", r.store.address, storeDeadline, nodesPerRegion)
		if w.plan.shared {
			_, port, _ := strings.Cut(testenv.FreeAddress(w), ":")
			target := net.JoinHostPort(address, port)
			b.targets = append(b.targets, target)
			o.Listen = fmt.Sprintf("regions: %q", target)
			config += w.regionsSection(r.name)
		}
		n := &node{Node: o.New(w, w.program, config, files)}
		n.Start()
		n.connect(w, r.place)
		r.nodes = append(r.nodes, n)
	}
	listener, err := w.network.Listen(w.Context(), r.name, net.JoinHostPort(address, regionsPort))
	testenv.NoError(w, err)
	w.Cleanup(func() { _ = listener.Close() })
	go b.serve(listener)
}

// regionsSection returns the section of a region's config that describes all regions.
func (w *world) regionsSection(name string) string {
	var members []string
	for _, member := range names {
		members = append(members, fmt.Sprintf("%s: {address: %q, weight: 1}", member, net.JoinHostPort(w.network.Address(member), regionsPort)))
	}
	return fmt.Sprintf("regions:\n  name: %s\n  members: {%s}\n  tls: {cert_file: cert.pem, key_file: key.pem, ca_file: ca.pem}\n", name,
		strings.Join(members, ", "))
}

// connect connects to the server from within its region.
func (n *node) connect(w *world, place *testenv.Place) {
	conn, err := grpc.NewClient("passthrough:///"+n.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return place.Dial(ctx, "tcp", address) }),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}, MinConnectTimeout: time.Second,
		}))
	testenv.NoError(w, err)
	w.Cleanup(func() { _ = conn.Close() })
	n.checks = checkv1.NewCheckServiceClient(conn)
}
