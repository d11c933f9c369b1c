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
	// maxConnections is for one listener. Each of gRPC carries many callers, and each of HTTP costs some 10 kB.
	maxConnections = 10_000
	// addressShare is the part of a listener's connections, and of the streams of a server, that one address may have: one in
	// so many. A proxy in front needs far fewer, and other addresses always have the rest.
	addressShare = 2
)

// Listener is a TCP listener with a cap, for all connections and for those from one address. A connection beyond it is closed at
// once: its client can go elsewhere, which it could not know if it waited.
type Listener struct {
	net.Listener
	most int
	log  *slog.Logger
	// unread is what was answered on all connections and is not written.
	unread atomic.Int64

	warned ratelog.Limiter // by message

	mu   sync.Mutex
	open map[*connection]struct{}
	from map[netip.Addr]int
}

// Listen opens an address. Key is what it is called in the config, for the error and the log.
func Listen(ctx context.Context, key, address string, log *slog.Logger) (*Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is taken by another program: stop it, or write another port", key, address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s: this user may not listen on %s: write a port above 1023", key, address)
	case err != nil:
		return nil, fmt.Errorf("%s: cannot listen on %s: write an address of this machine: %w", key, address, err)
	}
	return &Listener{
		Listener: l, most: maxConnections, log: log.With("listener", key),
		open: map[*connection]struct{}{}, from: map[netip.Addr]int{}, warned: ratelog.Limiter{Every: time.Minute},
	}, nil
}

// Open is how many connections there are.
func (l *Listener) Open() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.open))
}

// Accept waits for a connection that is within the cap.
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

// admit counts a connection. It returns nil for one that is beyond the cap.
func (l *Listener) admit(c net.Conn) net.Conn {
	added := &connection{Conn: c, listener: l, from: netaddr.PeerNetwork(c.RemoteAddr().String()).Addr()}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.open) >= l.most:
		l.warn("too many connections: new ones are closed", "most", l.most)
		return nil
	case l.from[added.from] >= l.most/addressShare:
		l.warn("too many connections from one address: its new ones are closed", "address", added.from, "most", l.most/addressShare)
		return nil
	}
	l.open[added] = struct{}{}
	l.from[added.from]++
	return added
}

// remove undoes admit, once.
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

// connection counts until it is closed, however often.
type connection struct {
	net.Conn
	listener *Listener
	from     netip.Addr
	// unread is what was answered and is not written, as gRPC does not before the client asks for it. It may be too low by what is
	// written besides: frames and headers.
	unread atomic.Int64
}

func (c *connection) Close() error {
	c.listener.remove(c)
	return c.Conn.Close()
}

// CloseWrite is for package http, which ends so what it denies and then waits for half a second, that the client can read
// it. The client would wait as long for the end.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
