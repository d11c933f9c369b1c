package storewrap

import (
	"testing"

	"github.com/headgate/headgate"
)

// The fleet size that the store reports counts even if the result failed. Results without it change nothing.
func TestFleet(t *testing.T) {
	t.Parallel()
	var f fleet
	f.init(2, 1)
	for _, c := range []struct {
		result      headgate.Result
		nodes, rank int64
	}{
		{headgate.Result{}, 2, 0},
		{headgate.Result{Nodes: 10, Rank: 7}, 10, 7},
		{headgate.Result{Err: errOpen}, 10, 7},
		{headgate.Result{Err: headgate.ErrUnavailable, Nodes: 11, Rank: 8}, 11, 8},
		{headgate.Result{Path: headgate.PathLocal, Nodes: 1}, 11, 8},
		{headgate.Result{Nodes: 1, Rank: 1}, 2, 1},
	} {
		f.observe([]headgate.Result{c.result})
		if m := *f.members.Load(); m != (members{c.nodes, c.rank}) || f.size() != c.nodes {
			t.Errorf("%+v: %+v, want node %d of %d", c.result, m, c.rank, c.nodes)
		}
	}
}
