package attack

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// expectation is what every response to a denied request must contain, derived only from the results of its limits.
type expectation struct {
	status int
	// worst is the limit that denies for the longest time.
	worst *headgate.LimitDecision
	// violated are the policies that deny, as clients may see them; remaining has all policies that they see, with their
	// remaining units.
	violated  []string
	remaining map[string]int64
	// capacity and reset are those of worst, reset in whole Unix seconds; 0 if it is not known.
	capacity, reset int64
}

// expect derives the expectation from the results: a limit denies if it is enforced and not allowed.
func expect(d *headgate.Decision) expectation {
	e := expectation{status: http.StatusServiceUnavailable, remaining: map[string]int64{}}
	longer := func(a, b *headgate.LimitDecision) bool {
		if (a.Err == nil) != (b.Err == nil) {
			return a.Err == nil
		}
		return b.RetryAfter != headgate.Never && (a.RetryAfter == headgate.Never || a.RetryAfter > b.RetryAfter)
	}
	for i := range d.Limits {
		l := &d.Limits[i]
		name := l.Rule
		if l.Name != "" {
			name += "#" + l.Name
		}
		denies := l.Enforced && !l.Allowed
		if !l.Exposed {
			name = "(hidden)"
		}
		switch {
		case denies:
			e.remaining[name] = 0
		case l.Exposed && l.Err == nil:
			e.remaining[name] = min(l.Remaining, l.Limit.Capacity())
		}
		if !denies {
			continue
		}
		if !slices.Contains(e.violated, name) {
			e.violated = append(e.violated, name)
		}
		if l.Err == nil {
			e.status = http.StatusTooManyRequests
		}
		if e.worst == nil || longer(l, e.worst) {
			e.worst = l
		}
	}
	e.capacity = e.worst.Limit.Capacity()
	if at := e.worst.Time.Add(e.worst.ResetAfter); !e.worst.Time.IsZero() {
		e.reset = at.Unix()
		if at.Nanosecond() > 0 {
			e.reset++
		}
	}
	return e
}

// disagreement collects the differences between responses and the expectation.
type disagreement struct{ lines []string }

func (d *disagreement) addf(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// retryAfter judges a wait in whole seconds: never early, and at most a tenth later.
func (d *disagreement) retryAfter(where string, got string, wait time.Duration) {
	if wait == headgate.Never {
		if got != "" {
			d.addf("%s: Retry-After is %s for a request that is never allowed", where, got)
		}
		return
	}
	seconds, err := strconv.ParseInt(got, 10, 64)
	least := max(int64((wait+time.Second-1)/time.Second), 1)
	if latest := least + max(least/10, 1) + 1; err != nil || seconds < least || seconds > latest {
		d.addf("%s: Retry-After is %q, want %d to %d for %s", where, got, least, latest, wait)
	}
}

// throughClient is the surface of a program that uses package client.
const throughClient = "client"

// headers judges the headers of a response.
func (d *disagreement) headers(where string, e *expectation, get func(string) string) {
	reset := ""
	if e.reset > 0 {
		reset = strconv.FormatInt(e.reset, 10)
	}
	// A client of the service has a single time, at which an unused counter is already reset.
	if where == throughClient && e.worst.ResetAfter == 0 && reset != "" && get("X-RateLimit-Reset") == strconv.FormatInt(e.reset+1, 10) {
		reset = get("X-RateLimit-Reset")
	}
	for name, want := range map[string]string{
		"X-RateLimit-Limit": strconv.FormatInt(e.capacity, 10), "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": reset,
		"RateLimit-Limit": strconv.FormatInt(e.capacity, 10), "RateLimit-Remaining": "0",
	} {
		if get(name) != want {
			d.addf("%s: %s is %q, want %q", where, name, get(name), want)
		}
	}
	d.retryAfter(where, get("Retry-After"), e.worst.RetryAfter)
	d.fields(where, e, get)
}

// fields judges RateLimit-Policy and RateLimit.
func (d *disagreement) fields(where string, e *expectation, get func(string) string) {
	left := map[string]int64{}
	for item := range strings.SplitSeq(get("RateLimit"), ", ") {
		parts := strings.Split(item, ";")
		name, _ := strconv.Unquote(parts[0])
		for _, p := range parts[1:] {
			key, value, _ := strings.Cut(p, "=")
			n, err := strconv.ParseInt(value, 10, 64)
			if _, twice := left[name]; err != nil || twice && key == "r" {
				d.addf("%s: RateLimit is %s", where, get("RateLimit"))
			}
			if key == "r" {
				left[name] = n
			}
		}
	}
	if !maps.Equal(left, e.remaining) {
		d.addf("%s: RateLimit is %s, want %v", where, get("RateLimit"), e.remaining)
	}
	for name := range e.remaining {
		if !strings.Contains(get("RateLimit-Policy"), strconv.Quote(name)) {
			d.addf("%s: RateLimit-Policy is %s, without %s", where, get("RateLimit-Policy"), name)
		}
	}
}

// problem judges the body of a response, also against its headers.
func (d *disagreement) problem(where string, e *expectation, response shownResponse) {
	var p struct {
		Status     int
		Violated   []string `json:"violated-policies"`
		Rule       string
		Error      string
		RetryAfter *int64 `json:"retry_after"`
	}
	if err := json.Unmarshal(response.body, &p); err != nil {
		d.addf("%s: %v: %s", where, err, response.body)
		return
	}
	rule := "(hidden)"
	if e.worst.Exposed {
		rule = e.worst.Rule
	}
	retryAfter := ""
	if p.RetryAfter != nil {
		retryAfter = strconv.FormatInt(*p.RetryAfter, 10)
	}
	if p.Status != e.status || p.Rule != rule || retryAfter != response.header.Get("Retry-After") ||
		!slices.Equal(slices.Sorted(slices.Values(p.Violated)), slices.Sorted(slices.Values(e.violated))) ||
		(p.Error == "rate_limit_unavailable") != (e.status == http.StatusServiceUnavailable) {
		d.addf("%s: the body is %s, want status %d, rule %s, policies %v, retry_after %q", where, response.body, e.status, rule, e.violated,
			response.header.Get("Retry-After"))
	}
	if strings.Contains(fmt.Sprint(response.header, string(response.body)), secretID) {
		d.addf("%s: names a hidden rule: %v %s", where, response.header, response.body)
	}
}

// durationOf converts seconds in JSON; Never if there are none.
func durationOf(s *float64) time.Duration {
	if s == nil {
		return headgate.Never
	}
	return time.Duration(*s*1e9 + 0.5)
}

// json judges the response of the check API.
func (d *disagreement) json(e *expectation, denied *headgate.Decision, a *jsonResponse) {
	d.headers("JSON", e, func(name string) string { return a.Headers[name] })
	if a.Allowed || a.Remaining == nil || *a.Remaining != 0 || (durationOf(a.RetryAfter)-denied.RetryAfter).Abs() > time.Microsecond ||
		(a.Reset == nil) != (e.reset == 0) || a.Reset != nil && !a.Reset.Equal(e.worst.Time.Add(e.worst.ResetAfter)) {
		d.addf("JSON: %+v, want a wait of %s and a reset after %s", a, denied.RetryAfter, e.worst.ResetAfter)
	}
	for i := range a.Limits {
		got, want := &a.Limits[i], &denied.Limits[i]
		if got.Rule != want.Rule || got.Name != want.Name || got.Allowed != want.Allowed || want.Err == nil && *got.Remaining != want.Remaining ||
			(durationOf(got.RetryAfter)-want.RetryAfter).Abs() > time.Microsecond {
			d.addf("JSON: limit %+v, want %+v", got, want)
		}
	}
}

// grpc judges the response of the check API over gRPC.
func (d *disagreement) grpc(e *expectation, denied *headgate.Decision, a *checkv1.CheckResponse) {
	d.headers("gRPC", e, func(name string) string { return a.GetHeaders()[name] })
	us := int64(-1)
	if denied.RetryAfter != headgate.Never {
		us = int64((denied.RetryAfter + time.Microsecond - 1) / time.Microsecond)
	}
	reset := int64(0)
	if e.reset > 0 {
		reset = e.worst.Time.Add(e.worst.ResetAfter).UnixMicro()
	}
	if a.GetAllowed() || a.GetRemaining() != 0 || a.GetRetryAfterUs() != us || a.GetResetUs() != reset {
		d.addf("gRPC: %v, want a wait of %s and a reset after %s", a, denied.RetryAfter, e.worst.ResetAfter)
	}
}

// envoy judges the response to Envoy.
func (d *disagreement) envoy(e *expectation, a *rlsv3.RateLimitResponse) {
	header := http.Header{}
	for _, h := range a.GetResponseHeadersToAdd() {
		header.Set(h.GetKey(), h.GetValue())
	}
	d.headers("Envoy", e, header.Get)
	d.problem("Envoy", e, shownResponse{header, a.GetRawBody()})
	s := a.GetStatuses()[0]
	if a.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT || s.GetCode() != a.GetOverallCode() || s.GetLimitRemaining() != 0 ||
		int64(s.GetCurrentLimit().GetRequestsPerUnit()) != e.worst.Limit.Count || strings.Contains(s.String(), secretID) {
		d.addf("Envoy: %v, want nothing left of %s", s, e.worst.Limit)
	}
}

// call judges the response to a client of a limited gRPC service.
func (d *disagreement) call(e *expectation, s *status.Status, trailer map[string][]string) {
	header := http.Header{}
	for name, values := range trailer {
		header.Set(name, values[0])
	}
	d.fields("grpclimit", e, header.Get)
	want := codes.ResourceExhausted
	if e.status == http.StatusServiceUnavailable {
		want = codes.Unavailable
	}
	var wait time.Duration
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			wait = info.GetRetryDelay().AsDuration()
		}
	}
	if s.Code() != want || want == codes.ResourceExhausted && wait < e.worst.RetryAfter || strings.Contains(fmt.Sprint(s, trailer), secretID) {
		d.addf("grpclimit: %v waits %s, trailer %v, want %s and %s", s, wait, trailer, want, e.worst.RetryAfter)
	}
}
