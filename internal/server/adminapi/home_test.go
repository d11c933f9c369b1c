package adminapi

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/memstore"
)

// homesDown is a store in which homes do not decide, but by a local share if the rule says so.
type homesDown struct {
	*memstore.Store
	err error // nil if they do
}

func (s *homesDown) Take(ctx context.Context, charges []headgate.Charge, results []headgate.Result) error {
	err := s.Store.Take(ctx, charges, results)
	for i := range charges {
		switch c := &charges[i]; {
		case s.err == nil || c.Regions != headgate.HomeRegion:
		case c.OnStoreFailure == headgate.FailLocal && !c.Credit:
			results[i].Path = headgate.PathLocal
		default:
			results[i], err = headgate.Result{Err: s.err}, s.err
		}
	}
	return err
}

// TestHome names the region that counts a subject, and never this region's Redis if that region does not respond.
func TestHome(t *testing.T) {
	t.Parallel()
	rules, err := headgate.Compile(
		headgate.Rule{ID: "local", By: []string{"user"}, Regions: headgate.HomeRegion, Limit: headgate.PerMinute(10)},
		headgate.Rule{ID: "deny", By: []string{"user"}, Regions: headgate.HomeRegion, OnStoreFailure: headgate.FailDeny, Limit: headgate.PerMinute(10)},
		headgate.Rule{ID: "each", By: []string{"user"}, Limit: headgate.PerMinute(10)},
	)
	if err != nil {
		t.Fatal(err)
	}
	store := &homesDown{Store: memstore.New(memstore.Options{})}
	limiter := headgate.NewLimiter(store, rules, headgate.Options{Share: func(_ headgate.Subject, whole *headgate.Limit) headgate.Limit { return *whole }})
	home := explain.Home{Name: "us", Problem: "does not respond: connection refused"}
	a, _ := New(limiter, Options{
		Tokens: fakeAuthority{}, Redis: "redis://r", Home: func(headgate.Subject) explain.Home { return home },
	}).(*api)
	w := &world{api: a, limiter: limiter, describe: readDescription(t)}
	const usage, question, subject = "GET /usage?subjectType=user&subjectId=ann&ruleId=", `{"attributes": {"user": "ann"}}`, `{"subject": {"user": "ann"}}`
	w.call(t, viewer, usage+"local", "").want(http.StatusOK).has("home.name=us", "home.own=false", "home.problem=", "limits.0.home.name=us", "localShare=")
	w.call(t, viewer, usage+"each", "").want(http.StatusOK).has("home=")
	w.call(t, viewer, "POST /v1/explain", question).want(http.StatusOK).has("limits.0.home.name=us", "limits.0.home.problem=", "limits.2.home=")

	store.err = headgate.ErrUnavailable
	const failure = "region us, the home of user=ann, does not respond: connection refused"
	w.call(t, viewer, usage+"local", "").want(http.StatusOK).has("home.name=us", "home.problem=", "localShare=true")
	w.call(t, viewer, "POST /v1/explain", question).want(http.StatusOK).has("redis_unavailable=false", "limits.0.rule=deny",
		"limits.0.home.problem="+home.Problem, "limits.1.home.problem="+home.Problem, "limits.2.home=")
	for call, detail := range map[string]string{
		usage + "deny":            failure,
		"POST /rules/deny/reset":  failure + "; repeat the reset when it responds",
		"POST /rules/local/reset": failure + "; repeat the reset when it responds",
	} {
		body := subject
		if call == usage+"deny" {
			body = ""
		}
		w.call(t, editor, call, body).wantProblem(http.StatusServiceUnavailable, detail)
	}
	store.err = errors.Join(headgate.ErrUnavailable, headgate.ErrUnanswered)
	w.call(t, editor, "POST /rules/local/reset", subject).wantProblem(http.StatusServiceUnavailable, failure+": it is unknown whether the units were given back")
	home = explain.Home{Name: "eu", Own: true}
	w.call(t, editor, usage+"deny", "").wantProblem(http.StatusServiceUnavailable, "redis://r: store unavailable")
}
