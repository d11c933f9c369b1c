package testenv

import (
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Ports are below the range that the kernel uses for outgoing connections (32768 and up on Linux). Otherwise the kernel could give a
// client that dials a killed server's port that same port as its own, and Restart would find it in use.
const (
	firstPort = 10000
	lastPort  = 32000
)

var ports struct {
	sync.Mutex
	next int
}

// freePort returns a port that nothing listens on. Ports are allocated in sequence, so that a port is not reused while its server is
// down. Each process starts at a different port, because go test runs packages in parallel.
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

// FreeAddress returns a host:port that nothing listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := freePort()
	NoError(t, err)
	return localAddr(port)
}
