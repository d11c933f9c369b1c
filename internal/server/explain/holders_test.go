package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestHolders shows which nodes have the units of a concurrency limit, next to a limit without holders.
func TestHolders(t *testing.T) {
	t.Parallel()
	now := time.Unix(2_000_000_000, 0)
	full := exceeded("exports", headgate.Unknown)
	full.Limit, full.Time = headgate.Concurrent(10), now
	e := explanation(within("rate"), full)
	e.Decision.Time = now
	e.Holders = [][]headgate.Holder{nil, {
		{Node: "api-1:8080", ID: 0xabc000, Units: 8, Until: now.Add(9 * time.Second)}, {ID: 1 << 63, Units: 2, Until: now.Add(time.Second)},
	}}
	r := New(e, Question{}, Place{Redis: "redis://r", Key: headgate.Subject.String})
	for _, want := range []string{`
Units in use, by node; a live node renews its lease
  RULE     NODE        UNITS  LEASE ENDS  HOLDER
  exports  api-1:8080  8      in 9 s      0000000000abc000
  exports  unknown     2      in 1 s      8000000000000000
`, "429: denied by exports; retry when a request in flight has ended"} {
		if got := r.Text(); !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if got := r.Limits[0].Holders; len(got) != 2 || got[0] != (Holder{"0000000000abc000", "api-1:8080", 8, now.Add(9 * time.Second).UTC()}) {
		t.Errorf("%+v", got)
	}
	if alone := New(e, Question{}, Place{}).Text(); !strings.Contains(alone, "exports  this server  2") {
		t.Error(alone)
	}
}
