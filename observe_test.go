package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

func ExampleLimiter_WithObserver() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{ID: "search", By: []string{"user"}, Limit: headgate.PerMinute(1)})
	if err != nil {
		fmt.Println(err)
		return
	}
	denied := map[string]int{} // or a counter of your metrics library
	observed := limiter.WithObserver(func(_ context.Context, o *headgate.Observation) {
		if l := o.Decision.DeniedBy(); l != nil {
			denied[l.Rule]++
		}
	})
	for range 3 {
		// The decision is the same as the limiter's. Pass observed to middleware as well.
		if _, err := observed.Check(context.Background(), headgate.Request{Attributes: headgate.Attributes{"user": "ann"}}); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(denied)
	// Output: map[search:2]
}

// TestWithObserver checks that every call is reported once, with the decision and error that the caller gets.
func TestWithObserver(t *testing.T) {
	t.Parallel()
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{ID: "all", By: []string{}, Limit: headgate.PerMinute(9)})
	if err != nil {
		t.Fatal(err)
	}
	var seen []headgate.Observation
	began := time.Now()
	o := limiter.WithObserver(func(_ context.Context, o *headgate.Observation) {
		if at := o.Time(); at.Before(began) || time.Since(at) > time.Minute || !o.Time().Equal(at) {
			t.Errorf("decided at %v", at)
		}
		began = o.Time()
		seen = append(seen, *o)
	})
	req := headgate.Request{Attributes: headgate.Attributes{"user": "ann"}}
	ctx := t.Context()
	decided := func(d headgate.Decision, err error) { // compares with the last call
		t.Helper()
		last := seen[len(seen)-1]
		if !errors.Is(err, last.Err) || last.Decision.Allowed != d.Allowed || last.Decision.Path != d.Path || last.Duration <= 0 {
			t.Errorf("returned %+v, reported %+v", d, last)
		}
	}
	decided(o.Check(ctx, req))
	decided(o.Peek(ctx, req))
	r, err := o.Reserve(ctx, req, time.Minute)
	decided(r.Decision, err)
	decided(o.Commit(ctx, r.Token, req))
	decided(o.Cancel(ctx, []byte("none")))
	decided(o.Refund(ctx, req))
	decided(o.Check(ctx, headgate.Request{Rule: "none"}))
	if _, err := o.CheckAll(ctx, []headgate.BatchRequest{{Request: req}, {Request: req, Peek: true}, {Request: req, Credit: true}}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.CheckAll(ctx, []headgate.BatchRequest{{Request: headgate.Request{Rule: "none"}}}); err == nil {
		t.Error("unknown rule: no error")
	}
	var calls []headgate.Call
	timed := 0
	for _, s := range seen {
		calls = append(calls, s.Call)
		if s.Duration > 0 {
			timed++
		}
	}
	want := []headgate.Call{"check", "peek", "reserve", "commit", "cancel", "refund", "check", "check", "peek", "refund", "check"}
	if !slices.Equal(calls, want) {
		t.Errorf("seen %v", calls)
	}
	if timed != len(want)-2 { // requests decided together have one duration
		t.Errorf("%d have a duration", timed)
	}
	if len(seen[0].Decision.Limits) != 1 || seen[0].Attributes["user"] != "ann" || seen[4].Err == nil {
		t.Errorf("%+v", seen)
	}
}

// TestExempt checks that decisions name the rules that a request is exempt from, in Check and in CheckAll.
func TestExempt(t *testing.T) {
	t.Parallel()
	limiter, err := headgate.New(
		memstore.New(memstore.Options{}),
		headgate.Rule{ID: "a", By: []string{"user"}, Limit: headgate.PerMinute(1)},
		headgate.Rule{ID: "b", By: []string{"user"}, Limit: headgate.PerMinute(1)},
	)
	if err != nil {
		t.Fatal(err)
	}
	free := func(rule, user string) {
		t.Helper()
		if err := limiter.Exceptions().Exempt(headgate.Exemption{Rule: rule, Attribute: "user", Value: user}); err != nil {
			t.Fatal(err)
		}
	}
	free("a", "ann")
	free("b", "ann")
	free("b", "bob")
	requests := []headgate.BatchRequest{}
	for _, user := range []string{"ann", "bob", "eve"} {
		requests = append(requests, headgate.BatchRequest{Request: headgate.Request{Attributes: headgate.Attributes{"user": user}}})
	}
	together, err := limiter.CheckAll(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		path   headgate.Path
		exempt []string
		limits int
	}{{headgate.PathExempt, []string{"a", "b"}, 0}, {headgate.PathStore, []string{"b"}, 1}, {headgate.PathStore, nil, 2}} {
		alone, err := limiter.Peek(t.Context(), requests[i].Request)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []headgate.Decision{together[i], alone} {
			if d.Path != want.path || !slices.Equal(d.Exempt, want.exempt) || len(d.Limits) != want.limits {
				t.Errorf("request %d: %s, exempt from %v, %d limits", i, d.Path, d.Exempt, len(d.Limits))
			}
		}
	}
}

// TestDecidedBy checks that each limit reports how it was decided, independently of the others.
func TestDecidedBy(t *testing.T) {
	t.Parallel()
	for want, l := range map[headgate.Path]headgate.LimitDecision{
		headgate.PathRules:  {Missing: "user"},
		headgate.PathFailed: {Result: headgate.Result{Err: headgate.ErrUnavailable}},
		headgate.PathStore:  {},
		headgate.PathLocal:  {Result: headgate.Result{Path: headgate.PathLocal}},
	} {
		if got := l.DecidedBy(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestParseSubject checks that the result of Subject.String can be parsed, and nothing else.
func TestParseSubject(t *testing.T) {
	t.Parallel()
	subject := headgate.SubjectOf("ann")
	if got, ok := headgate.ParseSubject(subject.String()); !ok || got != subject {
		t.Errorf("%v, want %v", got, subject)
	}
	text := subject.String()
	for _, bad := range []string{"", text[1:], text + "A", text[1:] + "=", text[2:] + "\n\n", text[1:] + "ä"} {
		if got, ok := headgate.ParseSubject(bad); ok {
			t.Errorf("%q is %v", bad, got)
		}
	}
}
