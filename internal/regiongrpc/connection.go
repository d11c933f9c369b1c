package regiongrpc

import (
	"context"
	"crypto/x509"
	"net"
	"sync"
	"time"
)

// maxSilence is how long a connection may leave what was sent to it without any response. A peer answers at once, and gRPC sends pings at
// most every ten seconds, which is too rarely to find out that a network is cut.
const maxSilence = 2 * time.Second

// connections are the open connections to a peer.
type connections struct {
	mu   sync.Mutex
	open map[*connection]struct{}
	leaf *x509.Certificate // this server's certificate in the last handshake
}

// dial opens a connection.
func (s *connections) dial(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: raw, of: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*connection]struct{}{}
	}
	s.open[c] = struct{}{}
	return c, nil
}

// count returns the number of open connections.
func (s *connections) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// handshake records which certificate this server used.
func (s *connections) handshake(leaf *x509.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaf = leaf
}

// closeUnless closes all connections if they use another certificate than the given one.
func (s *connections) closeUnless(leaf *x509.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaf == nil || s.leaf.Equal(leaf) {
		return
	}
	for c := range s.open {
		_ = c.Conn.Close() // gRPC closes it again, and connects anew
	}
}

// connection is a connection that is closed if it does not respond to what was sent.
type connection struct {
	net.Conn
	of *connections

	mu      sync.Mutex
	waiting bool // for a response
}

func (c *connection) Write(b []byte) (int, error) {
	c.mu.Lock()
	if !c.waiting {
		c.waiting = c.SetReadDeadline(time.Now().Add(maxSilence)) == nil
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		if c.waiting {
			_ = c.SetReadDeadline(time.Time{}) // it fails only if the connection is closed
			c.waiting = false
		}
		c.mu.Unlock()
	}
	return n, err
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
