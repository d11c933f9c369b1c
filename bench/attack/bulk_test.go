package attack

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/testenv"
)

// bulk is a PostgreSQL with the rule and the overrides of one tenant.
type bulk struct {
	t  *testing.T
	db *pgrules.DB
}

func startBulk(t *testing.T) *bulk {
	t.Helper()
	c := &controlPlane{t: t, postgres: testenv.StartPostgres(t)}
	b := &bulk{t, c.open()}
	if _, _, err := b.db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.publish("acme")
	return b
}

// publish publishes the rule of a tenant.
func (b *bulk) publish(tenant string) {
	b.t.Helper()
	d, err := pgrules.Define(fmt.Appendf(nil, `{"id": "%s-api", "by": ["tenant", "user"], "match": {"tenant": %[1]q}, "limit": "10/minute"}`, tenant))
	if err != nil {
		b.t.Fatal(err)
	}
	d.Owner = tenant
	edit := pgrules.Edit{Name: d.Rule.ID, Put: d, Revision: pgrules.AnyRevision}
	if _, err := b.db.Publish(b.t.Context(), pgrules.Who{Name: "ed", Tenant: tenant}, pgrules.Change{Edits: []pgrules.Edit{edit}}); err != nil {
		b.t.Fatal(err)
	}
}

// set overrides the limits of the first n users of acme at once, and returns how long all other writers had to wait.
func (b *bulk) set(n int, limit string) time.Duration {
	b.t.Helper()
	all := make([]pgrules.Override, n)
	for i := range all {
		all[i] = pgrules.Override{
			Rule: "acme-api", Subject: headgate.Attributes{"tenant": "acme", "user": fmt.Sprintf("u%d", i)}, Limit: limit, Reason: "load",
		}
	}
	start := time.Now()
	if _, err := b.db.SetOverrides(b.t.Context(), pgrules.Who{Name: "eve", Tenant: "acme"}, all); err != nil {
		b.t.Fatal(err)
	}
	return time.Since(start)
}

// TestTenantChangesAllOverrides: a tenant's editor changes all of its overrides repeatedly. Every other tenant's change waits for
// that, so a change may take about as long as storing the overrides, and four times as many about four times as long. A test of
// package pgrules counts the rows that PostgreSQL reads.
func TestTenantChangesAllOverrides(t *testing.T) {
	elapsed := map[int]time.Duration{}
	few, many := size(1_500, 2_250), size(6_000, 9_000)
	for _, n := range []int{few, many} {
		b := startBulk(t)
		first := b.set(n, "1000/minute")
		elapsed[n] = min(b.set(n, "1001/minute"), b.set(n, "1002/minute"), b.set(n, "1003/minute"))
		ratio := elapsed[n].Seconds() / first.Seconds()
		t.Logf("%d overrides: stored in %s, changed in %s, %.1f times as long", n, first, elapsed[n], ratio)
		if ratio > 6 {
			t.Errorf("%d overrides: a change of all takes %.1f times as long as storing them, want about 2", n, ratio)
		}
	}
	growth := elapsed[many].Seconds() / elapsed[few].Seconds()
	t.Logf("four times as many overrides are changed in %.1f times the time", growth)
	if growth > 9 {
		t.Errorf("four times as many overrides take %.1f times as long, want about 4", growth)
	}
}
