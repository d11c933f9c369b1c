package headgate_test

import (
	"errors"
	"iter"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestOverrideOfClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{ID: "r", By: []string{"client"}, Limit: headgate.PerMinute(1)})
	err := w.Exceptions().Set(headgate.Override{Rule: "r", Subject: headgate.Attributes{"api_key": "k"}, Limit: headgate.PerMinute(4)})
	if err != nil {
		t.Fatal(err)
	}
	w.wantAllowed(4, 9, "api_key=k ip=1")
	w.wantAllowed(1, 9, "user=k")

	w = newWorld(t, headgate.Rule{ID: "r", By: []string{"tenant", "client"}, Limit: headgate.PerMinute(1)})
	err = w.Exceptions().Set(headgate.Override{Rule: "r", Subject: headgate.Attributes{"user": "u", "tenant": "t"}, Limit: headgate.PerMinute(4)})
	if err != nil {
		t.Fatal(err)
	}
	w.wantAllowed(4, 9, "user=u tenant=t")
	w.wantAllowed(1, 9, "api_key=u tenant=t")
}

func TestExemptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(nil), rule(func(r *headgate.Rule) { r.ID, r.Limit = "other", headgate.PerMinute(1) }))
	exempt := func(x headgate.Exemption) {
		t.Helper()
		if err := w.Exceptions().Exempt(x); err != nil {
			t.Fatal(err)
		}
	}
	exempt(headgate.Exemption{Rule: "other", Attribute: "user", Value: "ann"})
	exempt(headgate.Exemption{Attribute: "api_key", Value: "root", Expires: w.now.Add(time.Minute)})
	exempt(headgate.Exemption{Attribute: "ip", Value: "10.0.0.0/8"})
	exempt(headgate.Exemption{Rule: "other", Attribute: "ip", Value: "2001:db8::/32"})
	exempt(headgate.Exemption{Attribute: "ip", Value: "192.0.2.7", Expires: w.now.Add(time.Minute)})
	w.wantAllowed(9, 9, "user=gus ip=192.0.2.7")
	w.wantAllowed(3, 9, "user=ann")
	w.wantAllowed(1, 9, "user=bob")
	w.wantAllowed(9, 9, "user=cid api_key=root")
	w.wantAllowed(9, 9, "user=dan ip=10.2.3.4")
	w.wantAllowed(3, 9, "user=eve ip=2001:db8:1:2::/64")
	w.now = w.now.Add(time.Minute)
	w.wantAllowed(1, 9, "user=cid api_key=root")
	w.wantAllowed(1, 9, "user=gus ip=192.0.2.7")
	w.Exceptions().Unexempt(headgate.Exemption{Attribute: "ip", Value: "10.0.0.0/8"})
	w.Exceptions().Unexempt(headgate.Exemption{Rule: "other", Attribute: "user", Value: "ann"})
	w.wantAllowed(1, 9, "user=flo ip=10.2.3.4")
	w.now = w.now.Add(time.Hour)
	w.wantAllowed(1, 9, "user=ann")
	if err := w.Exceptions().Replace(nil, nil); err != nil {
		t.Fatal(err)
	}
	if o, x := w.Exceptions().Len(); o+x != 0 {
		t.Errorf("%d overrides and %d exemptions after all were removed", o, x)
	}
}

func TestInvalidExceptionsAreRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(nil))
	e := w.Exceptions()
	for name, err := range map[string]error{
		"override: rule: required":              e.Set(headgate.Override{Limit: headgate.PerDay(1)}),
		`override of rule "r": limit: required`: e.Set(headgate.Override{Rule: "r"}),
		`override of rule "r": limit: count -1`: e.Set(headgate.Override{Rule: "r", Limit: headgate.PerDay(-1)}),
		`exemption: attribute "tenant": must be one of api_key, user, service_account, ip`: e.Exempt(headgate.Exemption{Attribute: "tenant", Value: "x"}),
		`exemption by user: value: required`:                                               e.Exempt(headgate.Exemption{Attribute: "user"}),
		`exemption by ip: value "office": not a network: write 10.0.0.0/8`:                 e.Exempt(headgate.Exemption{Attribute: "ip", Value: "office"}),
		`exemption: attribute "": must be one of api_key, user, service_account, ip`:       e.Replace(nil, each([]headgate.Exemption{{}})),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	if o, x := e.Len(); o+x != 0 {
		t.Errorf("%d overrides and %d exemptions after none was accepted", o, x)
	}
}

func TestExpiredExceptionsAreSwept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(nil))
	set := func(i int, expires time.Time) {
		err := w.Exceptions().Set(headgate.Override{
			Rule: "r", Subject: headgate.Attributes{"user": strconv.Itoa(i)}, Limit: headgate.PerMinute(9), Expires: expires,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10_000 {
		set(i, w.now.Add(time.Minute))
	}
	w.now = w.now.Add(time.Hour)
	for i := range 10_000 {
		set(100_000+i, time.Time{})
	}
	if n, _ := w.Exceptions().Len(); n > 12_000 {
		t.Errorf("%d overrides are kept, and 10,000 have not expired", n)
	}
}

// TestExceptionsChangeUnderLoad makes all kinds of changes concurrently. What was set after the last Replace must not be lost.
func TestExceptionsChangeUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, rule(nil))
	e := w.Exceptions()
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := range 500 {
				user := headgate.Attributes{"user": strconv.Itoa(worker*1000 + i)}
				if err := e.Set(headgate.Override{Rule: "r", Subject: user, Limit: headgate.PerMinute(50)}); err != nil {
					t.Error(err)
				}
				if err := e.Exempt(headgate.Exemption{Attribute: "user", Value: "x" + user["user"]}); err != nil {
					t.Error(err)
				}
				if i%50 == 0 && worker == 0 {
					if err := e.Replace(nil, nil); err != nil {
						t.Error(err)
					}
				}
				if _, err := w.Check(t.Context(), headgate.Request{Attributes: user}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	d := w.check("user=499") // set by the goroutine that replaced, after its last Replace
	if d.Limits[0].Limit.Count != 50 {
		t.Errorf("%+v", d)
	}
}

func each[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, one := range all {
			if !yield(one, nil) {
				return
			}
		}
	}
}

// TestFailedReplaceChangesNothing yields an error in the middle of a Replace.
func TestFailedReplaceChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, headgate.Rule{ID: "r", By: []string{"user"}, Limit: headgate.PerMinute(1)})
	e, broken := w.Exceptions(), errors.New("the line is dead")
	if err := e.Exempt(headgate.Exemption{Attribute: "user", Value: "ann"}); err != nil {
		t.Fatal(err)
	}
	exemptions := func(yield func(headgate.Exemption, error) bool) {
		_ = yield(headgate.Exemption{Attribute: "user", Value: "bob"}, nil) && yield(headgate.Exemption{}, broken)
	}
	if err := e.Replace(nil, exemptions); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if _, n := e.Len(); n != 1 {
		t.Errorf("%d exemptions, want 1 as before", n)
	}
}
