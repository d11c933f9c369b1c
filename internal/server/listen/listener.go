package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/ratelog"
)

const (
	// MaxConnections is the maximum number of connections of a listener. A gRPC connection carries many callers, and an HTTP
	// connection costs about 10 kB.
	MaxConnections = 10_000
	// addressShare is the divisor for the share of one address in a listener's connections and a server's streams. A proxy
	// needs far fewer, and the rest stays available to other addresses.
	addressShare = 2
)

// Listener is a TCP listener with a limit on all connections and on those from one address. A connection over the limit is closed
// immediately, so that its client can try another server instead of waiting.
type Listener struct {
	net.Listener
	maxOpen int
	log     *slog.Logger
	// unread is the number of response bytes of all connections that are not yet written.
	unread atomic.Int64

	warned ratelog.Limiter // by message

	mu   sync.Mutex
	open map[*connection]struct{}
	from map[netip.Addr]int
}

// Listen opens an address. key is the config key of the listener, for errors and logs.
func Listen(ctx context.Context, key, address string, log *slog.Logger) (*Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is in use by another program: stop it, or write another port", key, address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: no permission to listen on %s: write a port above 1023", key, address)
	case err != nil:
		return nil, fmt.Errorf("%s: cannot listen on %s: write an address of this host: %w", key, address, err)
	}
	return &Listener{
		Listener: l, maxOpen: MaxConnections, log: log.With("listener", key),
		open: map[*connection]struct{}{}, from: map[netip.Addr]int{}, warned: ratelog.Limiter{Every: time.Minute},
	}, nil
}

// Open returns the number of open connections.
func (l *Listener) Open() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.open))
}

// Accept waits for a connection within the limits.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := l.admit(c); admitted != nil {
			return admitted, nil
		}
		_ = c.Close()
	}
}

// admit counts a connection. It returns nil if the connection is over a limit.
func (l *Listener) admit(c net.Conn) net.Conn {
	added := &connection{Conn: c, listener: l, from: netaddr.PeerNetwork(c.RemoteAddr().String()).Addr()}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.open) >= l.maxOpen:
		l.warn("too many connections: closing new ones", "limit", l.maxOpen)
		return nil
	case l.from[added.from] >= l.maxOpen/addressShare:
		l.warn("too many connections from one address: closing new ones", "address", added.from, "limit", l.maxOpen/addressShare)
		return nil
	}
	l.open[added] = struct{}{}
	l.from[added.from]++
	return added
}

// remove reverts admit. Further calls have no effect.
func (l *Listener) remove(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, counted := l.open[c]; !counted {
		return
	}
	delete(l.open, c)
	if l.from[c.from]--; l.from[c.from] == 0 {
		delete(l.from, c.from)
	}
	c.settle()
}

// warn logs a message at most once a minute.
func (l *Listener) warn(message string, args ...any) {
	l.warned.Log(context.Background(), l.log, slog.LevelWarn, message, message, args...)
}

// connection is counted until it is first closed.
type connection struct {
	net.Conn
	listener *Listener
	from     netip.Addr
	// unread is the number of response bytes that are not yet written: gRPC writes only as much as the client's flow control
	// allows. It may be too low by other written bytes, such as frame headers.
	unread atomic.Int64
}

func (c *connection) Close() error {
	c.listener.remove(c)
	return c.Conn.Close()
}

// CloseWrite closes the write half of the connection. Package http calls it after an early error response and then waits half
// a second, so that the client can read the response. Without it the client would see the end of the response only after that
// wait.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
