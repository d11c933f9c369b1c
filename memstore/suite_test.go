package memstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/storetest"
)

// TestSuite runs the conformance suite.
func TestSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(testing.TB) storetest.Target {
		var now atomic.Int64
		store := memstore.New(memstore.Options{Clock: func() time.Time { return time.UnixMicro(now.Load()) }})
		return storetest.Target{Store: store, SetTime: func(t time.Time) { now.Store(t.UnixMicro()) }}
	}, 200_000)
}
