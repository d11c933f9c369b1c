package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// maxConnections is for one listener. Each of gRPC carries many callers, and each of HTTP costs some 10 kB.
const maxConnections = 10_000

// Listener is a TCP listener with a cap. A connection beyond it is closed at once: its client can go elsewhere, which it
// could not know if it waited.
type Listener struct {
	net.Listener
	most int64
	open atomic.Int64
	log  *slog.Logger

	mu     sync.Mutex
	warned time.Time
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
	return &Listener{Listener: l, most: maxConnections, log: log.With("listener", key)}, nil
}

// Open is how many connections there are.
func (l *Listener) Open() int64 { return l.open.Load() }

// Accept waits for a connection that is within the cap.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.most {
			return &connection{Conn: c, gone: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		_ = c.Close()
		l.warn()
	}
}

// warn says once a minute that the cap is reached.
func (l *Listener) warn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.warned) > time.Minute {
		l.warned = now
		l.log.Warn("too many connections: new ones are closed", "most", l.most)
	}
}

// connection counts until it is closed, however often.
type connection struct {
	net.Conn
	gone func()
}

func (c *connection) Close() error {
	c.gone()
	return c.Conn.Close()
}

// CloseWrite is for package http, which ends so what it refuses and then waits for half a second, that the client can read
// it. The client would wait as long for the end.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
