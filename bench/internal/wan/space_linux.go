package wan

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	tunPath    = "/dev/net/tun"
	deviceName = "wan0"
)

// require ends the test if there are no namespaces or no TUN devices.
func require(t testing.TB) {
	t.Helper()
	var missing string
	switch _, err := os.Stat(tunPath); {
	case os.Geteuid() != 0:
		missing = "root"
	case err != nil:
		missing = tunPath
	default:
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("the emulated network requires %s", missing)
	}
	t.Skipf("the emulated network requires %s", missing)
}

// space is a network namespace with one TUN device.
type space struct {
	net *os.File // keeps the namespace
	tun *os.File // reads what programs in the namespace send, and writes what they receive
}

// newSpace creates a namespace with an address, in which all other addresses of 198.18.0.0/16 are behind the TUN device.
func newSpace(address netip.Addr) (s *space, err error) {
	s = &space{}
	err = onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		if s.net, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		if s.tun, err = openTUN(); err != nil {
			return err
		}
		return configure(address)
	})
	if err != nil {
		s.close()
	}
	return s, err
}

func (s *space) close() {
	for _, f := range []*os.File{s.net, s.tun} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// run calls f in the namespace. What f opens stays there.
func (s *space) run(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(s.net.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// prefix returns the beginning of a command line that runs a program in the namespace.
func (s *space) prefix() []string {
	return []string{"nsenter", "--net=/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(s.net.Fd())), "--"}
}

// onThread calls f on a thread of its own, which ends with f, since no other goroutine may run in its namespace.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // without an unlock, the thread ends with the goroutine
		err := errors.New("wan: the function ended its goroutine")
		defer func() { done <- err }()
		err = f()
	}()
	return <-done
}

// openTUN creates the TUN device of the thread's namespace. It exists until the file is closed.
func openTUN() (*os.File, error) {
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tunPath, err)
	}
	request, err := unix.NewIfreq(deviceName)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s: new device: %w", tunPath, err)
	}
	return os.NewFile(uintptr(fd), tunPath), nil // it is not blocking, so that Close ends a Read
}

// configure sets the device's address, and brings it and the loopback device up.
func configure(address netip.Addr) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	ip := address.As4()
	setAddress := func(bytes []byte) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { return r.SetInet4Addr(bytes) }
	}
	up := func(r *unix.Ifreq) error {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return nil
	}
	for _, step := range []struct {
		device  string
		request uint
		set     func(*unix.Ifreq) error
	}{
		{"lo", unix.SIOCSIFFLAGS, up},
		{deviceName, unix.SIOCSIFADDR, setAddress(ip[:])},
		{deviceName, unix.SIOCSIFNETMASK, setAddress([]byte{255, 255, 0, 0})},
		{deviceName, unix.SIOCSIFFLAGS, up},
	} {
		request, err := unix.NewIfreq(step.device)
		if err == nil {
			err = step.set(request)
		}
		if err == nil {
			err = unix.IoctlIfreq(socket, step.request, request)
		}
		if err != nil {
			return fmt.Errorf("configure %s: %w", step.device, err)
		}
	}
	return nil
}
