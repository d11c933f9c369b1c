package regiongrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
	regionv1 "github.com/headgate/headgate/proto/headgate/region/v1"
)

const (
	helloEvery   = time.Second
	helloTimeout = time.Second
	// maxHellos is the maximum number of servers of a region that are called each second.
	maxHellos = 16
	// lookupEvery is the interval of lookups while a region is not reached, and lookupPeriod otherwise. The resolver of gRPC may wait two
	// minutes after a failed lookup, and does not notice new servers.
	lookupEvery  = time.Second
	lookupPeriod = 10 * time.Second
	// connectTimeout is the maximum time to connect, and maxConnectPause the pause between attempts.
	connectTimeout  = 2 * time.Second
	maxConnectPause = 1500 * time.Millisecond
)

// link is the way to the servers of another region.
type link struct {
	network     *Network
	member      Member
	host, port  string
	connections connections
	resolver    *manual.Resolver
	conn        *grpc.ClientConn
	client      regionv1.RegionServiceClient

	// Only resolve uses these.
	addresses []netip.Addr
	looked    time.Time

	mu       sync.Mutex
	state    State
	failures int // since the last contact
}

var (
	_ region.Link    = (*link)(nil)
	_ headgate.Store = (*link)(nil)
)

func newLink(n *Network, m Member, host, port string) (*link, error) {
	l := &link{network: n, member: m, host: host, port: port, resolver: manual.NewBuilderWithScheme("region")}
	l.state = State{Peer: m.Name, Address: m.Address}
	if ip, err := netip.ParseAddr(host); err == nil {
		l.use([]netip.Addr{ip})
	}
	var err error
	l.conn, err = grpc.NewClient(
		"region:///"+m.Address,
		grpc.WithResolvers(l.resolver),
		grpc.WithTransportCredentials(&clientCredentials{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: host}), l}),
		grpc.WithContextDialer(l.connections.dial),
		// A loan request must not be executed twice. gRPC repeats only calls that it has not sent, or that the server says it has not begun.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: maxConnectPause},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, err
	}
	l.client = regionv1.NewRegionServiceClient(l.conn)
	l.conn.Connect()
	return l, nil
}

// Lend implements [region.Link].
func (l *link) Lend(ctx context.Context, r region.LoanRequest) (region.Loan, error) {
	m, err := l.client.Lend(ctx, messageOf(&r))
	if err != nil {
		return region.Loan{}, fmt.Errorf("region %s: %w", l.member.Name, err)
	}
	return loanOf(m), nil
}

// resolve looks up the addresses of the region's servers, if it is time to.
func (l *link) resolve(ctx context.Context) {
	if up := l.currentState().Up; up && time.Since(l.looked) < lookupPeriod {
		return
	}
	l.looked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	addresses, err := l.network.lookup(ctx, l.host)
	switch {
	case err == nil && len(addresses) > 0:
		l.use(addresses)
	case l.addresses == nil:
		l.resolver.CC().ReportError(fmt.Errorf("look up %s: %w", l.host, err))
	}
}

// use makes gRPC connect to addresses.
func (l *link) use(addresses []netip.Addr) {
	slices.SortFunc(addresses, netip.Addr.Compare)
	if slices.Equal(addresses, l.addresses) {
		return
	}
	l.addresses = addresses
	var state resolver.State
	for _, ip := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: net.JoinHostPort(ip.String(), l.port)})
	}
	l.resolver.UpdateState(state)
}

// beat calls the region once for each connection, and records the result. gRPC uses the connections in turn, so that each of them has to
// respond once in a while.
func (l *link) beat(ctx context.Context) {
	calls := min(max(1, l.connections.count()), maxHellos)
	results := make(chan hello, calls)
	for range calls {
		go func() { results <- l.hello(ctx) }()
	}
	best := <-results
	for range calls - 1 {
		if a := <-results; best.err != nil {
			best = a
		}
	}
	if ctx.Err() == nil {
		l.record(&best)
	}
}

// hello is the result of one call.
type hello struct {
	*regionv1.HelloResponse
	sent, received time.Time
	err            error
}

// hello calls the region once.
func (l *link) hello(ctx context.Context) hello {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	o := &l.network.options
	a := hello{sent: time.Now()}
	a.HelloResponse, a.err = l.client.Hello(ctx, &regionv1.HelloRequest{From: o.Own, Epoch: o.Epoch})
	a.received = time.Now()
	if status.Code(a.err) == codes.PermissionDenied {
		certificate, _ := l.network.certificates()
		l.connections.closeUnless(certificate.Leaf)
	}
	if a.err != nil {
		a.err = errors.New(reason(a.err))
	}
	return a
}

// reason returns the message of a gRPC error without what gRPC puts before it.
func reason(err error) string {
	message := status.Convert(err).Message()
	for _, prefix := range []string{"last connection error: ", `connection error: desc = "`} {
		if _, after, ok := strings.Cut(message, prefix); ok {
			message = strings.TrimSuffix(after, `"`)
		}
	}
	return strings.TrimPrefix(strings.TrimPrefix(message, "transport: "), "Error while dialing: ")
}
