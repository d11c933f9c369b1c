package attack

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/explain"
)

// operators judges what operators see of the same request afterwards: explain and usage.
func (d *disagreement) operators(t *testing.T, m *randomCase, e *expectation) {
	t.Helper()
	slack := 5 * time.Second // a busy machine may take this long
	if m.exact {
		slack = time.Microsecond
	}
	explained, err := m.limiter.Explain(t.Context(), m.request)
	if m.unavailable && explained.Decision.Path != m.denied.Path {
		return // the store decided the request, and is unavailable to operators
	}
	report := explain.New(&explained, explain.Question{Attributes: m.request.Attributes, Cost: m.request.Cost}, explain.Place{})
	if err != nil && e.status != http.StatusServiceUnavailable && explained.Decision.Path != headgate.PathFailed {
		d.addf("explain: %v", err)
		return
	}
	if code := strconv.Itoa(e.status); !strings.HasPrefix(report.Summary, code) && m.exact {
		d.addf("explain: %s, want %s", report.Summary, code)
	}
	if (report.Allowed || (durationOf(report.RetryAfter)-m.denied.RetryAfter).Abs() > slack) && e.worst.RetryAfter > slack {
		d.addf("explain: %s, want a wait of %s", report.Summary, m.denied.RetryAfter)
	}
	for i := range m.denied.Limits {
		l := &m.denied.Limits[i]
		if m.unavailable || l.Err != nil || l.Missing != "" || l.Origin == headgate.FromCandidate || l.Path == headgate.PathLocal {
			continue
		}
		n := slices.IndexFunc(report.Limits, func(r explain.Limit) bool {
			return r.Rule == l.Rule && r.Name == l.Name && r.Origin == l.Origin.String()
		})
		if n < 0 {
			d.addf("explain: no limit %s %s", l.Rule, l.Name)
			continue
		}
		if report.Limits[n].DecidedBy == string(headgate.PathFailed) {
			continue
		}
		reset := time.Duration(report.Limits[n].ResetAfter * 1e9)
		if m.exact && report.Limits[n].Remaining != l.Remaining || (reset-l.ResetAfter).Abs() > slack && l.ResetAfter > slack {
			d.addf("explain: %+v, want %d left and a reset after %s", report.Limits[n], l.Remaining, l.ResetAfter)
		}
	}
	d.usage(t, m, slack)
}

// usage judges the client's usage of each rule, from the admin API.
func (d *disagreement) usage(t *testing.T, m *randomCase, slack time.Duration) {
	t.Helper()
	for i := range m.rules {
		rule := &m.rules[i]
		if len(rule.By) == 1 && m.request.Attributes[rule.By[0]] == "" || m.unavailable {
			continue
		}
		left, ok := usage(t, m, rule)
		for k := range m.denied.Limits {
			l := &m.denied.Limits[k]
			if !ok || l.Rule != rule.ID || l.Origin == headgate.FromCandidate {
				continue
			}
			n := slices.IndexFunc(left.Limits, func(u struct {
				Name             string
				Limit, Remaining int64
				ResetAt          time.Time
			},
			) bool {
				return u.Name == l.Name
			})
			reset := l.Time.Add(l.ResetAfter)
			if n < 0 || left.Limits[n].Limit != l.Limit.Capacity() || m.exact && left.Limits[n].Remaining != l.Remaining ||
				left.Limits[n].ResetAt.Sub(reset).Abs() > slack && l.ResetAfter > slack {
				d.addf("usage: %+v, want %d of %d left until %s", left.Limits, l.Remaining, l.Limit.Capacity(), reset)
			}
		}
	}
}

// TestResponsesAgree denies requests with random rules, limits and stores. All surfaces must report the same denial: the limit that
// denies for the longest time, no remaining units, and when to retry.
func TestResponsesAgree(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	f := newSurfaces(t)
	seen := map[string]int{}
	for n := range size(300, 10_000) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		m, denied := newRandomCase(t, r, n%100 == 50)
		if !denied {
			m.close()
			seen["never denied"]++
			continue
		}
		d := judgeCase(t, f, m)
		m.close()
		seen["path "+string(m.denied.Path)]++
		e := expect(&m.denied)
		seen[fmt.Sprint("status ", e.status)]++
		if !e.worst.Exposed {
			seen["hidden"]++
		}
		for i := range m.denied.Limits {
			seen["limit by "+string(m.denied.Limits[i].DecidedBy())]++
		}
		if e.worst.RetryAfter == headgate.Never {
			seen["never allowed"]++
		}
		if len(d.lines) > 0 {
			t.Fatalf("seed %d, case %d: %+v\nrequest %+v\ndecision %+v\n%s", seed, n, m.rules, m.request, m.denied, strings.Join(d.lines, "\n"))
		}
	}
	t.Logf("seed %d: %v", seed, seen)
}

// judgeCase compares all responses to a denied request with the expectation.
func judgeCase(t *testing.T, f *surfaces, m *randomCase) *disagreement {
	t.Helper()
	f.engine.decision.Store(&m.denied)
	e, d := expect(&m.denied), &disagreement{}
	m.judgeResults(d)
	for name, send := range map[string]func() (int, shownResponse){
		"httplimit": f.middleware, "forward-auth": f.forwardAuth, throughClient: func() (int, shownResponse) { return f.throughClient(t) },
	} {
		status, response := send()
		if status != e.status {
			d.addf("%s: status %d, want %d", name, status, e.status)
		}
		d.headers(name, &e, response.header.Get)
		d.problem(name, &e, response)
	}
	inJSON := f.json(t)
	d.json(&e, &m.denied, &inJSON)
	d.grpc(&e, &m.denied, f.grpc(t))
	d.envoy(&e, f.rls(t))
	s, trailer := f.call(t)
	d.call(&e, s, trailer)
	d.operators(t, m, &e)
	return d
}

// judgeResults compares the decision with the results of its limits.
func (m *randomCase) judgeResults(d *disagreement) {
	d.lines = append(d.lines, m.mismatches...)
	e := expect(&m.denied)
	if m.denied.RetryAfter != e.worst.RetryAfter && e.worst.Err == nil {
		d.addf("RetryAfter of the decision is %s, of its limits %s", m.denied.RetryAfter, e.worst.RetryAfter)
	}
	for i := range m.denied.Limits {
		if l := &m.denied.Limits[i]; l.Granted != 0 && l.Enforced {
			d.addf("%s was charged %d by a denied request", l.Rule, l.Granted)
		}
	}
}
