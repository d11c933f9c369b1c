package main

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testenv"
)

// leasedLimit is the limit of a rule with the default mode, whose units nodes lease. Its callers want more.
const leasedLimit = 3_000

// TestUpgrade upgrades two servers to another version under load, one at a time, and rolls them back. No call may be lost, and limits
// must be exact, also if units are leased while versions are mixed. HEADGATE_UPGRADE_FROM is the program of the older version; "make
// upgrade" builds that of a release. Without it both versions have the same code.
func TestUpgrade(t *testing.T) {
	from, to := os.Getenv("HEADGATE_UPGRADE_FROM"), testenv.BuildHeadgate(t, "-ldflags=-X main.version=v1000.0.0")
	if from == "" {
		from = testenv.BuildHeadgate(t, "-ldflags=-X main.version=v0.0.1")
	}
	nodes := newNodes(t, from)
	before := nodes[0].version(t)
	c := newClient(t, headgate.FailAllow, nodes...)
	l, leased := newLoad(t, c), newLeasedLoad(t, c)
	for _, binary := range []string{to, from} {
		for _, n := range nodes {
			n.waitForLoad(t)
			n.stop(t)
			n.binary = binary
			n.start(t)
			n.waitForLoad(t)
			if changed := n.version(t) != before; changed != (binary == to) {
				t.Errorf("%s runs %s, and ran %s before the upgrade", n.address, n.version(t), before)
			}
		}
	}
	leased.end(t)
	l.end(t)
	if len(l.lost) > 0 {
		t.Errorf("%d of %d calls got no response", len(l.lost), l.total())
	}
}

// version returns the version that the process reports.
func (n *node) version(t *testing.T) string {
	t.Helper()
	_, metrics := send(t, "GET", "http://"+n.addressOf("ops")+"/metrics", "")
	_, rest, ok := strings.Cut(metrics, `headgate_build_info{version="`)
	version, _, _ := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("no version in\n%s", metrics)
	}
	return version
}

// leasedLoad is a set of callers of the rule leased.
type leasedLoad struct {
	client *client.Client
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	granted int64 // units that Redis knows of
	doubt   int64 // decided by a local share, as a stalled machine may cause
	lost    int64 // without a response
}

func newLeasedLoad(t *testing.T, c *client.Client) *leasedLoad {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &leasedLoad{client: c, stop: stop}
	t.Cleanup(l.ended.Wait)
	for range 4 {
		l.ended.Go(func() {
			for ctx.Err() == nil {
				l.check(t)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	return l
}

// check reports whether a request was denied.
func (l *leasedLoad) check(t *testing.T) (denied bool) {
	d, err := l.client.Check(t.Context(), headgate.Request{Rule: "leased"})
	if err != nil {
		t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case decidedByClient(&d):
		l.lost++
	case !d.Allowed:
		return d.Path != headgate.PathLocal
	case d.Path == headgate.PathLocal:
		l.doubt++
	default:
		l.granted++
	}
	return false
}

// end uses the rest of the limit up, and compares what was granted with the limit.
func (l *leasedLoad) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.ended.Wait()
	eventually(t, "the end of the limit", func() bool { return l.check(t) })
	if l.granted > leasedLimit || l.granted+l.doubt < leasedLimit || l.lost > 0 {
		t.Errorf("%d units granted and %d by a local share, of %d; %d calls lost", l.granted, l.doubt, leasedLimit, l.lost)
	}
	t.Logf("%d units granted and %d by a local share, of %d", l.granted, l.doubt, leasedLimit)
}
