package server

import (
	"net"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/listen"
)

// everywhere is a listener on all addresses of the machine.
type everywhere struct{ net.Listener }

func (everywhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8080} }

// A name that the config takes for this machine, and the machine for another address, does not open a listener.
func TestCheckBound(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{"localhost:8080": false, "127.0.0.1:8080": false, "192.0.2.1:8080": true, ":8080": true} {
		e := &endpoint{name: "http", address: address, listener: &listen.Listener{Listener: everywhere{}}}
		if err := checkBound(e); (err == nil) != want || err != nil && !strings.HasPrefix(err.Error(), "listen.http: ") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
