package pgrules_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// Every kind of change spends the quota of changes exactly, also with concurrent writers. Nothing else spends it.
func TestQuotaOfChanges(t *testing.T) {
	t.Parallel()
	const perDay = 30
	_, server := newDB(t)
	quotas := pgrules.DefaultQuotas()
	quotas.ChangesPerDay = perDay
	dbs := make([]*pgrules.DB, 3)
	for i := range dbs {
		dbs[i] = open(t, server)
		dbs[i].SetQuotas(quotas)
	}
	db := dbs[0]
	put(t, db, document("ours", "10/minute"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	rule := func(db *pgrules.DB, who pgrules.Who, limit int) error {
		_, err := db.Publish(t.Context(), who, pgrules.Change{Edits: []pgrules.Edit{own(t, "a", fmt.Sprintf(`, "description": "%d"`, limit))}})
		return err
	}
	override := func(db *pgrules.DB, who pgrules.Who, n, limit int) error {
		all := make([]pgrules.Override, n)
		for i := range all {
			subject := headgate.Attributes{"tenant": "acme", "user": strconv.Itoa(i)}
			all[i] = pgrules.Override{Rule: "a", Subject: subject, Limit: fmt.Sprintf("%d/minute", limit)}
		}
		_, err := db.SetOverrides(t.Context(), who, all)
		return err
	}
	spent := func(want int) {
		t.Helper()
		seconds := one[float64](t, server, "SELECT extract(epoch FROM drained_at - now())::float8 FROM rate_limit_tenant_changes WHERE tenant = 'acme'")
		if got := seconds / 86400 * perDay; got > float64(want) || got < float64(want)-1 {
			t.Errorf("%.2f changes spent, want %d", got, want)
		}
	}
	edit := own(t, "a", "")
	publish := func(who pgrules.Who) error {
		_, err := db.Publish(t.Context(), who, pgrules.Change{Edits: []pgrules.Edit{edit}})
		return err
	}
	must(publish(eve))
	spent(1)
	must(publish(eve)) // no change
	spent(1)
	must(override(db, eve, 5, 20))
	spent(6)
	must(override(db, eve, 6, 20)) // one of them is new
	spent(7)
	x, err := db.AddExemption(t.Context(), eve, pgrules.Exemption{Rule: "a", SubjectType: "user", SubjectValue: "ann"})
	must(err)
	must(db.RemoveExemption(t.Context(), eve, x.ID))
	spent(9)
	all, err := db.Overrides(t.Context(), pgrules.ExceptionFilter{Rule: "a"}, pgrules.Page{Limit: 1})
	must(err)
	must(db.RemoveOverride(t.Context(), eve, all[0].ID))
	must(db.Record(t.Context(), eve, "a", "acme", map[string]string{"what": "reset"}))
	spent(11)
	must(db.Record(t.Context(), eve, "a", "acme", map[string]string{"reason": strings.Repeat("x", 9_000)}))
	spent(14)
	must(override(db, ann, 50, 21)) // quotas do not apply to operators
	spent(14)

	if err := override(db, eve, perDay+1, 22); !errors.Is(err, pgrules.ErrRejected) || !strings.Contains(err.Error(), "send fewer at once") {
		t.Errorf("more than the quota at once: %v", err)
	}
	// 16 are left. A batch of 20 is rejected and spends none.
	var rate *pgrules.ChangeRateError
	if err := override(db, eve, 20, 23); !errors.As(err, &rate) || rate.RetryAfter < 3*time.Hour || rate.RetryAfter > 4*24*time.Hour/perDay {
		t.Fatalf("20 where 16 are left: %v", err)
	}
	wantWords(t, rate.Error(), "quota of tenant acme", "20 more changes would exceed 30 per day", "tenants.max_changes_per_day")
	spent(14)
	before := one[int](t, server, "SELECT count(*) FROM rate_limit_rule_audit")
	var writers sync.WaitGroup
	var accepted atomic.Int32
	for i := range 24 {
		writers.Go(func() {
			err := pgrules.ErrConflict
			for errors.Is(err, pgrules.ErrConflict) {
				if i%2 == 0 {
					err = override(dbs[i%3], eve, 1, 100+i)
				} else {
					err = rule(dbs[i%3], eve, 100+i)
				}
			}
			var rate *pgrules.ChangeRateError
			switch {
			case err == nil:
				accepted.Add(1)
			case !errors.As(err, &rate) || rate.RetryAfter > time.Hour:
				t.Errorf("%v", err)
			}
		})
	}
	writers.Wait()
	if n := one[int](t, server, "SELECT count(*) FROM rate_limit_rule_audit") - before; n != 16 || accepted.Load() != 16 {
		t.Errorf("%d accepted, %d audit entries: want 16", accepted.Load(), n)
	}
	must(sql(t, server, "UPDATE rate_limit_tenant_changes SET drained_at = drained_at - interval '1 hour'")) // as if an hour passed
	must(override(db, eve, 1, 200))
}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%s\nwant %q", text, w)
		}
	}
}
