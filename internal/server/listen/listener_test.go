package listen

import (
	"fmt"
	"net"
	"testing"
)

// fakeConn is a connection from an address that accepts all writes.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	addr, _ := net.ResolveTCPAddr("tcp", c.from)
	return addr
}

func (c *fakeConn) Write(data []byte) (int, error) { return len(data), nil }

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

// TestAddressShare checks that one address has at most its share of the connections, and that an IPv6 network counts as one
// address.
func TestAddressShare(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.maxOpen = 10
	admitted := func(from func(i int) string) (n int) {
		for i := range 20 {
			if l.admit(&fakeConn{from: from(i)}) != nil {
				n++
			}
		}
		return n
	}
	if n := admitted(func(i int) string { return fmt.Sprintf("[2001:db8::%x]:%d", i, 4000+i) }); n != 5 {
		t.Errorf("%d of 10 connections from a network of IPv6, want 5", n)
	}
	if n := admitted(func(i int) string { return fmt.Sprintf("192.0.2.1:%d", 4000+i) }); n != 5 {
		t.Errorf("%d of 5 connections from another address, want 5", n)
	}
	for c := range l.open {
		c.Close()
		c.Close()
	}
	if l.Open() != 0 || len(l.from) != 0 {
		t.Errorf("%d connections of %d addresses after all are closed", l.Open(), len(l.from))
	}
}

// TestUnread checks that the connection with the most unread bytes is closed when a listener has too many.
func TestUnread(t *testing.T) {
	t.Parallel()
	l := open(t)
	conns, raw := make([]*connection, 3), make([]*fakeConn, 3)
	for i := range conns {
		raw[i] = &fakeConn{from: fmt.Sprintf("192.0.2.%d:1", i)}
		conns[i], _ = l.admit(raw[i]).(*connection)
	}
	worst, reader, other := conns[0], conns[1], conns[2]
	for range 4 * maxUnread >> 20 { // over the limit in total, but it is read
		reader.queue(1 << 20)
		if _, err := reader.Write(make([]byte, 1<<20+100)); err != nil {
			t.Fatal(err)
		}
	}
	worst.queue(maxUnread/2 + 1)
	other.queue(maxUnread/2 - 1)
	if l.unread.Load() != maxUnread || l.Open() != 3 {
		t.Fatalf("%d bytes unread, %d connections", l.unread.Load(), l.Open())
	}
	reader.queue(1)
	if !raw[0].closed || raw[1].closed || raw[2].closed {
		t.Errorf("closed: %v, %v, %v", raw[0].closed, raw[1].closed, raw[2].closed)
	}
	if got := l.unread.Load(); got != maxUnread/2 {
		t.Errorf("%d bytes unread, want %d", got, maxUnread/2)
	}
	other.Close()
	reader.Close()
	if got := l.unread.Load(); got != 0 {
		t.Errorf("%d bytes unread after all are closed", got)
	}
}
