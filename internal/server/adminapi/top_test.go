package adminapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/internal/server/offenders"
)

const subjectAnn = "xCVBdQPQFe9-lHO_9kRLLA"

// fakeNodes responds as nodes would, and records the queries.
type fakeNodes struct {
	top     offenders.Query
	denials denials.Query
}

var twoOfThree = fanout.Coverage{Nodes: 3, Replied: 2, Problem: "1 of 3 nodes did not answer in time"}

func (s *fakeNodes) Top(_ context.Context, q offenders.Query) (offenders.Result, fanout.Coverage, error) {
	s.top = q
	ann := headgate.Attributes{"user": "ann"}
	return offenders.Result{
		Limited: []offenders.Limited{{Rule: "search", Subject: subjectAnn, Attributes: ann, Denied: 17, Error: 2}},
		Near:    []offenders.Near{{Rule: "login", Limit: "day", Subject: subjectAnn, Used: 9, Of: 10, At: time.Unix(1_800_000_000, 0).UTC()}},
	}, twoOfThree, nil
}

func (s *fakeNodes) Denials(_ context.Context, q denials.Query) (denials.Result, fanout.Coverage, error) {
	s.denials = q
	at, wait := time.Unix(1_800_000_000, 0).UTC(), 1.5
	return denials.Result{From: at, Unrecorded: 3, Records: []denials.Record{{
			First: at, Last: at.Add(time.Second), Count: 2, Node: "gate:8080", Rule: "login", Name: "day", Limit: "10/day",
			Origin: "tier", Subject: subjectAnn, Attributes: headgate.Attributes{"user": "ann"}, Cost: 1, RetryAfter: &wait,
			Path: headgate.PathStore, RulesVersion: "0123456789ab", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
		}, {
			First: at, Last: at, Count: 1, Node: "gate:8080", Rule: "login", Limit: "10/day", Origin: "rule", Subject: subjectAnn,
			Path: headgate.PathRules, Missing: "user",
		}}},
		twoOfThree, nil
}

// watched returns the API of a server that observes its decisions.
func watched(t *testing.T) (w *world, s *fakeNodes) {
	t.Helper()
	a, s := newFilesAPI(t), &fakeNodes{}
	a.Top, a.Denials, a.ShowSubjects = s.Top, s.Denials, "clear"
	return &world{api: a, describe: readDescription(t)}, s
}

func TestTop(t *testing.T) {
	t.Parallel()
	w, s := watched(t)
	w.call(t, viewer, "GET /top", "").want(http.StatusOK).has("nodes=3", "nodesAnswered=2", "showSubjects=clear",
		"problem=1 of 3 nodes did not answer in time", "windowSeconds=300", "denied.0.rule=search", "denied.0.subject="+subjectAnn,
		"denied.0.attributes.user=ann", "denied.0.denied=17", "denied.0.error=2", "near.0.limit=day", "near.0.used=9", "near.0.of=10")
	if s.top != (offenders.Query{WindowSeconds: 300, Limit: 20}) {
		t.Errorf("query %+v", s.top)
	}
	w.call(t, viewer, "GET /top?rule=search&window=600&limit=100", "").want(http.StatusOK).has("windowSeconds=600")
	if s.top != (offenders.Query{Rule: "search", WindowSeconds: 600, Limit: 100}) {
		t.Errorf("query %+v", s.top)
	}
	w.call(t, viewer, "GET /top?window=601", "").wantProblem(http.StatusBadRequest, `window "601": must be 60 to 600`)
	w.call(t, viewer, "GET /top?limit=0", "").wantProblem(http.StatusBadRequest, `limit "0": must be 1 to 100`)
	w.call(t, viewer, "GET /top?rules=x", "").wantProblem(http.StatusBadRequest, `unknown parameter "rules"`)
}

func TestDenials(t *testing.T) {
	t.Parallel()
	w, s := watched(t)
	const query = "attribute=user=a%3Db&attribute=api_key=secret&attribute=client=secret&rule=login&limit=7"
	w.call(t, viewer, "GET /denials?"+query, "").want(http.StatusOK).has(
		"nodesAnswered=2", "unrecorded=3", "denials.0.count=2", "denials.0.limitName=day", "denials.0.limit=10/day",
		"denials.0.origin=tier", "denials.0.retryAfterSeconds=1.5", "denials.0.attributes.user=ann", "denials.0.rulesVersion=0123456789ab",
		"denials.0.traceId=4bf92f3577b34da6a3ce929d0e0e4736", "denials.1.retryAfterSeconds=", "denials.1.missing=user")
	q := s.denials
	key := headgate.HashKey("secret")
	if q.Attributes["user"] != "a=b" || q.Attributes["api_key"] != key || q.Attributes["client"] != key || q.Rule != "login" || q.Limit != 7 ||
		time.Since(q.Since).Round(time.Minute) != 10*time.Minute {
		t.Errorf("query %+v", q)
	}
	w.call(t, viewer, "GET /denials?since=90&subject="+subjectAnn, "").want(http.StatusOK)
	if q := s.denials; q.Subject != subjectAnn || time.Since(q.Since).Round(10*time.Second) != 90*time.Second || q.Limit != 50 {
		t.Errorf("query %+v", q)
	}
	w.call(t, viewer, "GET /denials?since=2026-03-06T12:00:00%2B01:00", "").want(http.StatusOK).has("since=2026-03-06T11:00:00Z")
	for query, want := range map[string]string{
		"subject=ann":     `subject "ann": send the 22 characters`,
		"attribute=ann":   `attribute "ann": send NAME=VALUE`,
		"attribute=user=": `attribute "user=": send NAME=VALUE`,
		"since=yesterday": `since "yesterday": send a time`,

		"attribute=user_agent=curl": `attribute "user_agent": not recorded: send ip, user`,
		"since=-1":                  `since "-1"`,
		"limit=501":                 `limit "501": must be 1 to 500`,
		"user=ann":                  `unknown parameter "user"`,
	} {
		w.call(t, viewer, "GET /denials?"+query, "").wantProblem(http.StatusBadRequest, want)
	}
}

// A server that does not observe its decisions responds with 501.
func TestNotObserved(t *testing.T) {
	t.Parallel()
	a := newFilesAPI(t)
	for _, path := range []string{"/v1/rate-limit/top", "/v1/rate-limit/denials"} {
		status, detail := send(a, httptest.NewRequest(http.MethodGet, path, http.NoBody), viewer)
		if status != http.StatusNotImplemented || !strings.HasPrefix(detail, "this server does not observe its decisions") {
			t.Errorf("%s: %d %s", path, status, detail)
		}
	}
}
