package testenv

import (
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Ports are taken from below the range the kernel uses for outgoing
// connections (32768 and up on Linux). From within it, a client that dials a
// killed server's port could be given that very port as its own, and Restart
// would find it in use.
const (
	firstPort = 10000
	lastPort  = 32000
)

var ports struct {
	sync.Mutex
	next int
}

// freePort returns a port nothing listens on. Ports are handed out in a row, so
// that one is not given away again while its server is down; each process
// starts elsewhere in the range, because go test runs packages side by side.
func freePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.next == 0 {
		ports.next = firstPort + os.Getpid()*331%(lastPort-firstPort)
	}
	for range lastPort - firstPort {
		port := ports.next
		if ports.next++; ports.next > lastPort {
			ports.next = firstPort
		}
		l, err := net.Listen("tcp", localAddr(port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port")
}

func localAddr(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// FreeAddress is a host:port nothing listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := freePort()
	NoError(t, err)
	return localAddr(port)
}
