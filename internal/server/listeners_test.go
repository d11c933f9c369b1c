package server

import (
	"net"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/listen"
)

// boundListener is a listener that is bound to a non-loopback address.
type boundListener struct{ net.Listener }

func (boundListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8080} }

// TestCheckBound checks that a loopback name which resolves to a non-loopback address is rejected.
func TestCheckBound(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{"localhost:8080": false, "127.0.0.1:8080": false, "192.0.2.1:8080": true, ":8080": true} {
		e := &endpoint{name: "http", address: address, listener: &listen.Listener{Listener: boundListener{}}}
		if err := checkBound(e); (err == nil) != want || err != nil && !strings.HasPrefix(err.Error(), "listen.http: ") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
