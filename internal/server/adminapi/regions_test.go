package adminapi

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/memstore"
)

// fakeRegions has two regions, of which one does not respond.
type fakeRegions struct {
	credits  []int64
	problems []RegionProblem
}

func (*fakeRegions) Status(context.Context) (RegionsStatus, error) {
	return RegionsStatus{
		Region: "eu", Coverage: twoOfThree, Missing: []string{"gate-3:8080"},
		Members: []RegionMember{
			{Name: "eu", Own: true, Address: "eu.example.com:8084", Weight: 3, Share: 75, Up: true, Version: "v1", SameMembers: new(true)},
			{
				Name: "us", Address: "us.example.com:8084", Weight: 1, Share: 25, RTT: new(0.08), LastContact: new(time.Unix(1_800_000_000, 0).UTC()),
				ClockAhead: new(-0.5), Version: "v2", SameMembers: new(false), Problem: "it has other members or weights",
			},
		},
		Loans: RegionLoans{
			Lent: 1, Borrowed: 2, Lost: 3, Requests: 4, Unanswered: 5, Skipped: 6, Rejected: map[string]int64{"no_units": 7},
		},
		Unreached: []RegionUnreached{{"gate-2:8080", "us", "connection refused"}},
	}, nil
}

func (*fakeRegions) Usage(_ context.Context, l *headgate.LimitDecision) *explain.Regions {
	r := &explain.Regions{Limit: l.Limit.Capacity(), Complete: true}
	r.Add(explain.RegionUsage{Name: "eu", Own: true, Share: 100, Used: new(int64(30)), Remaining: new(int64(70)), Lent: new(int64(10))})
	r.Add(explain.RegionUsage{Name: "us", Share: 100, Problem: "did not respond in time"})
	return r
}

func (f *fakeRegions) Credit(_ context.Context, _ *headgate.LimitDecision, units int64) []RegionProblem {
	f.credits = append(f.credits, units)
	return f.problems
}

// sharedWorld returns an API with a shared rule with two limits, of which this region has a half.
func sharedWorld(t *testing.T) (*world, *fakeRegions) {
	t.Helper()
	rules, err := headgate.Compile(
		headgate.Rule{ID: "all", By: []string{"user"}, Regions: headgate.SharedRegions, Limits: map[string]headgate.Limit{
			"day":  {Algorithm: headgate.FixedWindow, Calendar: headgate.Day, Count: 200},
			"week": {Algorithm: headgate.FixedWindow, Calendar: headgate.Week, Count: 200},
		}},
		headgate.Rule{ID: "each", By: []string{"user"}, Limit: headgate.PerMinute(10)},
	)
	if err != nil {
		t.Fatal(err)
	}
	half := headgate.Fraction{To: 1, Of: 2}
	limiter := headgate.NewLimiter(memstore.New(memstore.Options{}), rules, headgate.Options{
		Share: func(_ headgate.Subject, whole *headgate.Limit) headgate.Limit { return half.Share(*whole) },
	})
	f := &fakeRegions{}
	a, _ := New(limiter, Options{Tokens: fakeAuthority{}, Regions: f}).(*api)
	return &world{api: a, limiter: limiter, describe: readDescription(t)}, f
}

func TestRegions(t *testing.T) {
	t.Parallel()
	w, _ := sharedWorld(t)
	w.call(t, viewer, "GET /v1/regions", "").want(http.StatusOK).has("region=eu", "nodes=3", "nodesAnswered=2", "missing.0=gate-3:8080",
		"members.0.own=true", "members.0.sharePercent=75", "members.0.rttSeconds=", "members.1.up=false", "members.1.rttSeconds=0.08",
		"members.1.clockAheadSeconds=-0.5", "members.1.sameMembers=false", "members.1.lastContact=2027-01-15T08:00:00Z",
		"loans.lentUnits=1", "loans.borrowedUnits=2", "loans.lostUnits=3", "loans.requests=4", "loans.unansweredRequests=5",
		"loans.skippedRequests=6", "loans.rejectedRequests.no_units=7", "unreached.0.node=gate-2:8080")
	w.api.Weights = &fakeWeights{}
	w.call(t, viewer, "GET /v1/regions", "").want(http.StatusOK).has("weights.serial=1", "weights.regions.0.acknowledged=true", "weights.since=2033-05-18T03:33:20Z")
	w.call(t, viewer, "GET /v1/regions?x=1", "").wantProblem(http.StatusBadRequest, `unknown parameter "x"`)
	w.api.Regions = nil
	w.call(t, viewer, "GET /v1/regions", "").wantProblem(http.StatusNotImplemented, "no other regions: write regions with name, members and tls")
}

// TestRegionsUsage shows the usage of a shared limit in all regions, and of another limit only here.
func TestRegionsUsage(t *testing.T) {
	t.Parallel()
	w, _ := sharedWorld(t)
	const usage = "GET /usage?subjectType=user&subjectId=ann&ruleId="
	w.call(t, viewer, usage+"all", "").want(http.StatusOK).has("limit=200", "share=100", "remaining=100", "limits.1.regions.used=30",
		"regions.limit=200", "regions.complete=false", "regions.members.0.name=eu", "regions.members.0.own=true", "regions.members.0.used=30",
		"regions.members.0.remaining=70", "regions.members.0.lent=10", "regions.members.1.share=100", "regions.members.1.used=",
		"regions.members.1.problem=did not respond in time")
	w.call(t, viewer, usage+"each", "").want(http.StatusOK).has("limit=10", "share=", "regions=")
	w.call(t, viewer, "POST /v1/explain", `{"attributes": {"user": "ann"}}`).want(http.StatusOK).has(
		"limits.0.capacity=100", "limits.0.used=0", "limits.0.regions.used=30", "limits.1.regions.limit=200", "limits.2.regions=")
}

// TestRegionsCredit gives units back, first in this region.
func TestRegionsCredit(t *testing.T) {
	t.Parallel()
	w, f := sharedWorld(t)
	if d, err := w.limiter.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"user": "ann"}, Rule: "all", Cost: 30}); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	credit := func(what, body string, want ...int64) reply {
		t.Helper()
		f.credits = nil
		r := w.call(t, editor, "POST /rules/all/"+what, `{"subject": {"user": "ann"}`+body+`}`).want(http.StatusOK)
		if len(f.credits) != len(want) || len(want) > 0 && f.credits[0] != want[0] {
			t.Errorf("%s %s: credits %v in other regions, want %v", what, body, f.credits, want)
		}
		return r
	}
	credit("grant", `, "units": 10`).has("remaining=80", "regionProblems=")
	f.problems = []RegionProblem{{"us", "did not respond in time"}}
	credit("grant", `, "units": 50`, 30, 30).has("remaining=100", "regionProblems.0.region=us", "regionProblems.1=")
	f.problems = nil
	credit("reset", "", 0, 0).has("remaining=100", "regionProblems=")
}
