package main

import (
	"io"
	"net"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// TestBalancer connects until each living server has responded, and no other.
func TestBalancer(t *testing.T) {
	var dialer net.Dialer
	b := &balancer{place: &testenv.Place{Dial: dialer.DialContext}, targets: []string{testenv.FreeAddress(t)}} // which is not in use
	listen := func() net.Listener {
		var config net.ListenConfig
		l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		testenv.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	for _, name := range []string{"a", "b"} {
		l := listen()
		b.targets = append(b.targets, l.Addr().String())
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, name)
				_ = conn.Close()
			}
		}()
	}
	front := listen()
	go b.serve(front)
	seen := map[string]int{}
	for range 9 {
		conn, err := dialer.DialContext(t.Context(), "tcp", front.Addr().String())
		testenv.NoError(t, err)
		text, err := io.ReadAll(conn)
		testenv.NoError(t, err)
		_ = conn.Close()
		seen[string(text)]++
	}
	if len(seen) != 2 || seen["a"] < 3 || seen["b"] < 3 {
		t.Errorf("%v, want a and b in turn", seen)
	}
}
