//go:build !linux

package wan

import (
	"errors"
	"net/netip"
	"os"
	"testing"
)

func require(t testing.TB) {
	t.Helper()
	t.Skipf("the emulated network requires Linux")
}

type space struct{ tun *os.File }

func newSpace(netip.Addr) (*space, error) { return nil, errors.ErrUnsupported }

func (s *space) close() {}

func (s *space) run(func() error) error { return errors.ErrUnsupported }

func (s *space) prefix() []string { return nil }
