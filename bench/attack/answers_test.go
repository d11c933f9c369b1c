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

// operators judges what operators see of the same request afterwards.
func (d *disagreement) operators(t *testing.T, m *mix, e *expectation) {
	t.Helper()
	slack := 5 * time.Second // which pass meanwhile on a busy machine
	if m.exact {
		slack = time.Microsecond
	}
	explained, err := m.limiter.Explain(t.Context(), m.request)
	if m.away && explained.Decision.Path != m.denied.Path {
		return // the store answered the request, and does not answer operators
	}
	report := explain.New(&explained, explain.Question{Attributes: m.request.Attributes, Cost: m.request.Cost}, explain.Place{})
	if err != nil && e.status != http.StatusServiceUnavailable && explained.Decision.Path != headgate.PathFailed {
		d.addf("explain: %v", err)
		return
	}
	if code := strconv.Itoa(e.status); !strings.HasPrefix(report.Summary, code) && m.exact {
		d.addf("explain: %s, want %s", report.Summary, code)
	}
	if (report.Allowed || (asSeconds(report.RetryAfter)-m.denied.RetryAfter).Abs() > slack) && e.worst.RetryAfter > slack {
		d.addf("explain: %s, want a wait of %s", report.Summary, m.denied.RetryAfter)
	}
	for i := range m.denied.Limits {
		l := &m.denied.Limits[i]
		if m.away || l.Err != nil || l.Missing != "" || l.Origin == headgate.FromCandidate || l.Path == headgate.PathLocal {
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

// usage judges what the admin API says the client has left of each rule.
func (d *disagreement) usage(t *testing.T, m *mix, slack time.Duration) {
	t.Helper()
	for i := range m.rules {
		rule := &m.rules[i]
		if len(rule.By) == 1 && m.request.Attributes[rule.By[0]] == "" || m.away {
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

// TestAnswersAgree denies requests by rules, limits and worlds at random. Whatever tells of a denial must say the same: the limit that
// denies for the longest time, nothing left of it, and when to come back.
func TestAnswersAgree(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	f := newFaces(t)
	seen := map[string]int{}
	for n := range size(300, 10_000) {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		m, denied := newMix(t, r, n%100 == 50)
		if !denied {
			m.close()
			seen["never denied"]++
			continue
		}
		d := judgeMix(t, f, m)
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
			seen["never fits"]++
		}
		if len(d.lines) > 0 {
			t.Fatalf("seed %d, mix %d: %+v\nrequest %+v\ndecision %+v\n%s", seed, n, m.rules, m.request, m.denied, strings.Join(d.lines, "\n"))
		}
	}
	t.Logf("seed %d: %v", seed, seen)
}

// judgeMix compares all answers to a denied request with what they should say.
func judgeMix(t *testing.T, f *faces, m *mix) *disagreement {
	t.Helper()
	f.engine.decision.Store(&m.denied)
	e, d := expect(&m.denied), &disagreement{}
	m.judgeResults(d)
	for name, ask := range map[string]func() (int, shownAnswer){
		"httplimit": f.middleware, "forward-auth": f.forwardAuth, throughClient: func() (int, shownAnswer) { return f.throughClient(t) },
	} {
		status, answer := ask()
		if status != e.status {
			d.addf("%s: status %d, want %d", name, status, e.status)
		}
		d.headers(name, &e, answer.header.Get)
		d.problem(name, &e, answer)
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

// judgeResults holds the decision against the sum of its limits.
func (m *mix) judgeResults(d *disagreement) {
	d.lines = append(d.lines, m.wrong...)
	e := expect(&m.denied)
	if m.denied.RetryAfter != e.worst.RetryAfter && e.worst.Err == nil {
		d.addf("the decision waits %s, its limits %s", m.denied.RetryAfter, e.worst.RetryAfter)
	}
	for i := range m.denied.Limits {
		if l := &m.denied.Limits[i]; l.Granted != 0 && l.Enforced {
			d.addf("%s was charged %d by a request that was denied", l.Rule, l.Granted)
		}
	}
}
