// Package wan connects regions by an emulated wide area network. Each region is a network namespace with one TUN device, and this process
// is the network between them: it delays packets, loses, duplicates and reorders them, and cuts links in one direction. It knows IPv4
// packets; it knows nothing of the programs that send them.
//
// It needs Linux, root and /dev/net/tun, and no netem in the kernel. The namespaces have no names: they end with this process and the
// programs in them, however it ends.
package wan

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// Options describe a network.
type Options struct {
	// Seed determines the fate of each packet: the n-th packet from one region to another has the same fate in all networks with this seed
	// and the same settings.
	Seed uint64
	// Regions are the names of the regions.
	Regions []string
	// OneWay returns the delay from one region to another.
	OneWay func(from, to string) time.Duration
	// Jitter is the mean of an exponentially distributed additional delay, which reorders packets; 0 means none.
	Jitter time.Duration
}

// Network is a running network.
type Network struct {
	regions []string
	spaces  []*space
	links   [][]*link // by sender and receiver
	queue   *queue
	running sync.WaitGroup
	closing sync.Once
}

// Start starts a network that ends with the test. All links work, without losses. The test is skipped where there is no network to
// be had, and fails there in CI.
func Start(t testing.TB, o Options) *Network {
	t.Helper()
	require(t)
	n, err := start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func start(o Options) (*Network, error) {
	if len(o.Regions) > 254 {
		return nil, fmt.Errorf("wan: Regions: %d regions: at most 254", len(o.Regions))
	}
	n := &Network{regions: o.Regions, queue: newQueue()}
	for i, from := range o.Regions {
		s, err := newSpace(addressOf(i))
		if err != nil {
			n.Close()
			return nil, fmt.Errorf("wan: region %s: %w", from, err)
		}
		n.spaces = append(n.spaces, s)
		links := make([]*link, len(o.Regions))
		for j, to := range o.Regions {
			if i != j {
				links[j] = newLink(o.Seed, uint64(i)<<32|uint64(j), o.OneWay(from, to), o.Jitter)
			}
		}
		n.links = append(n.links, links)
	}
	for i := range n.spaces {
		n.running.Go(func() { n.forward(i) })
	}
	n.running.Go(func() { n.queue.run(func(to int, packet []byte) { _, _ = n.spaces[to].tun.Write(packet) }) })
	return n, nil
}

// Close ends the network. The namespaces end with the last program in them.
func (n *Network) Close() {
	n.closing.Do(func() {
		n.queue.close()
		for _, s := range n.spaces {
			s.close()
		}
		n.running.Wait()
	})
}

// addressOf returns the address of a region: one of the range that is reserved for benchmarks, with the region in its third byte.
func addressOf(region int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(region + 1), 1}) }

// regionOf returns the region that an IPv4 packet is addressed to; false if there is none, or if it is not such a packet.
func (n *Network) regionOf(packet []byte) (int, bool) {
	if len(packet) < 20 || packet[0]>>4 != 4 {
		return 0, false
	}
	to := int(packet[18]) - 1
	return to, to >= 0 && to < len(n.regions) && addressOf(to) == netip.AddrFrom4([4]byte(packet[16:20]))
}

// forward sends on what a region sends, until its device is closed.
func (n *Network) forward(from int) {
	buffer := make([]byte, 1<<16)
	for {
		size, err := n.spaces[from].tun.Read(buffer)
		if err != nil {
			return
		}
		to, ok := n.regionOf(buffer[:size])
		if !ok || to == from {
			continue // such as the kernel's own IPv6
		}
		now := time.Now()
		for _, delay := range n.links[from][to].pass() {
			n.queue.add(now.Add(delay), to, slices.Clone(buffer[:size]))
		}
	}
}

// index returns the number of a region.
func (n *Network) index(region string) int {
	i := slices.Index(n.regions, region)
	if i < 0 {
		panic(fmt.Sprintf("wan: region %q: must be one of %q", region, n.regions))
	}
	return i
}

func (n *Network) link(from, to string) *link {
	i, j := n.index(from), n.index(to)
	if i == j {
		panic(fmt.Sprintf("wan: no link from %s to itself", from))
	}
	return n.links[i][j]
}

// Address returns the address of a region in all regions.
func (n *Network) Address(region string) string { return addressOf(n.index(region)).String() }

// SetDelay changes the delay from one region to another.
func (n *Network) SetDelay(from, to string, oneWay time.Duration) {
	n.link(from, to).set(func(l *link) { l.delay = oneWay })
}

// SetLoss makes the network lose a packet from one region to another with a probability.
func (n *Network) SetLoss(from, to string, probability float64) {
	n.link(from, to).set(func(l *link) { l.loss = probability })
}

// SetDuplication makes the network deliver a packet from one region to another twice with a probability, unless it is lost.
func (n *Network) SetDuplication(from, to string, probability float64) {
	n.link(from, to).set(func(l *link) { l.duplication = probability })
}

// Cut makes the network drop all packets from one region to another. Packets on their way still arrive.
func (n *Network) Cut(from, to string) { n.link(from, to).set(func(l *link) { l.cut = true }) }

// Join ends a Cut.
func (n *Network) Join(from, to string) { n.link(from, to).set(func(l *link) { l.cut = false }) }

// Counts returns what happened to the packets from one region to another so far.
func (n *Network) Counts(from, to string) Counts {
	l := n.link(from, to)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Total returns the sum of the counts of all links.
func (n *Network) Total() (total Counts) {
	for _, from := range n.regions {
		for _, to := range n.regions {
			if from != to {
				total.add(n.Counts(from, to))
			}
		}
	}
	return total
}

// Place returns a region as a place for test servers and other programs.
func (n *Network) Place(region string) *testenv.Place {
	return &testenv.Place{Prefix: n.spaces[n.index(region)].prefix(), Dial: n.Dial(region)}
}

// Dial returns a function that connects from a region to an address, which must be an IP address and a port.
func (n *Network) Dial(region string) func(ctx context.Context, network, address string) (net.Conn, error) {
	s := n.spaces[n.index(region)]
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		if _, err := netip.ParseAddrPort(address); err != nil {
			return nil, fmt.Errorf("wan: dial: %w", err)
		}
		return conn, s.run(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
	}
}

// Listen listens in a region on an address, which must be an IP address and a port.
func (n *Network) Listen(ctx context.Context, region, address string) (listener net.Listener, err error) {
	return listener, n.spaces[n.index(region)].run(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		return err
	})
}
