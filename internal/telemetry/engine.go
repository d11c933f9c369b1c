package telemetry

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
)

// Engine is a limiter that is counted.
type Engine struct {
	*headgate.Limiter
	metrics *Metrics
}

// Engine counts the decisions of a limiter.
func (m *Metrics) Engine(limiter *headgate.Limiter) *Engine { return &Engine{limiter, m} }

// Check is Limiter.Check.
func (e *Engine) Check(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	begun := e.metrics.begin()
	d, err := e.Limiter.Check(ctx, req)
	e.metrics.end(begun, "check", req.Attributes, &d, err)
	return d, err
}

// CheckAll is Limiter.CheckAll, of which every decision counts.
func (e *Engine) CheckAll(ctx context.Context, asks []headgate.Ask) ([]headgate.Decision, error) {
	begun := e.metrics.begin()
	decisions, err := e.Limiter.CheckAll(ctx, asks)
	e.metrics.took(begun)
	if err != nil {
		e.metrics.count("check", nil, &headgate.Decision{}, err)
		return nil, err
	}
	for i := range asks {
		ask, call := &asks[i], "check"
		switch {
		case ask.Credit:
			call = "refund"
		case ask.Peek:
			call = "peek"
		}
		e.metrics.count(call, ask.Attributes, &decisions[i], nil)
	}
	return decisions, nil
}

// Peek is Limiter.Peek.
func (e *Engine) Peek(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	begun := e.metrics.begin()
	d, err := e.Limiter.Peek(ctx, req)
	e.metrics.end(begun, "peek", req.Attributes, &d, err)
	return d, err
}

// Reserve is Limiter.Reserve.
func (e *Engine) Reserve(ctx context.Context, req headgate.Request, hold time.Duration) (headgate.Reservation, error) {
	begun := e.metrics.begin()
	r, err := e.Limiter.Reserve(ctx, req, hold)
	e.metrics.end(begun, "reserve", req.Attributes, &r.Decision, err)
	return r, err
}

// Commit is Limiter.Commit.
func (e *Engine) Commit(ctx context.Context, token []byte, actual headgate.Request) (headgate.Decision, error) {
	begun := e.metrics.begin()
	d, err := e.Limiter.Commit(ctx, token, actual)
	e.metrics.end(begun, "commit", actual.Attributes, &d, err)
	return d, err
}

// Cancel is Limiter.Cancel.
func (e *Engine) Cancel(ctx context.Context, token []byte) (headgate.Decision, error) {
	begun := e.metrics.begin()
	d, err := e.Limiter.Cancel(ctx, token)
	e.metrics.end(begun, "cancel", nil, &d, err)
	return d, err
}

// Refund is Limiter.Refund.
func (e *Engine) Refund(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	begun := e.metrics.begin()
	d, err := e.Limiter.Refund(ctx, req)
	e.metrics.end(begun, "refund", req.Attributes, &d, err)
	return d, err
}

// decided are the labels of headgate_decisions_total.
type decided struct {
	call, result string
	path         headgate.Path
	tier         string
}

// refusal are the labels of headgate_rule_refusals_total.
type refusal struct{ rule, mode string }

// The kinds of headgate_store_errors_total.
const (
	unavailable = "unavailable"
	unanswered  = "unanswered"
)

// begin is the time since the start, which takes half as long to ask for as the time of day.
func (m *Metrics) begin() time.Duration {
	m.inFlight.Add(1)
	return time.Since(m.start)
}

// end notes one answer.
func (m *Metrics) end(begun time.Duration, call string, asked headgate.Attributes, d *headgate.Decision, err error) {
	m.took(begun)
	m.count(call, asked, d, err)
}

func (m *Metrics) took(begun time.Duration) {
	m.inFlight.Add(-1)
	m.duration.Observe((time.Since(m.start) - begun).Seconds())
}

// Observe has somebody told of every decision, after it is made. It is set before the first.
func (m *Metrics) Observe(observe func(call string, asked headgate.Attributes, d *headgate.Decision)) {
	m.observe = observe
}

func (m *Metrics) count(call string, asked headgate.Attributes, d *headgate.Decision, err error) {
	if m.observe != nil && err == nil {
		m.observe(call, asked, d)
	}
	result := "refused"
	switch {
	case err != nil:
		result = "error"
	case d.Allowed:
		result = "allowed"
	}
	m.decisions.of(decided{call, result, d.Path, asked["tier"]}).Inc()
	if d.Path == headgate.PathFailed || d.Path == headgate.PathLocal {
		m.failed(d)
	}
	if call == "check" || call == "reserve" {
		m.refusedBy(d)
	}
}

// failed counts a decision for which the store did not answer, once.
func (m *Metrics) failed(d *headgate.Decision) {
	kind := unavailable
	for i := range d.Limits {
		if errors.Is(d.Limits[i].Err, headgate.ErrUnanswered) {
			kind = unanswered
		}
	}
	m.failures.WithLabelValues(kind).Inc()
}

// modes are whether a limit is in force, the values of a label.
var modes = [...]string{"enforce", "shadow", "candidate"}

// refusedBy counts the rules whose limits a request exceeds, each once in a mode. The limits of a rule are neighbours.
func (m *Metrics) refusedBy(d *headgate.Decision) {
	var last [len(modes)]string
	for i := range d.Limits {
		l := &d.Limits[i]
		mode := 0
		switch {
		case l.Origin == headgate.FromCandidate:
			mode = 2
		case !l.Enforced:
			mode = 1
		}
		if l.WouldRefuse() && l.Rule != last[mode] {
			m.refusals.of(refusal{l.Rule, modes[mode]}).Inc()
			last[mode] = l.Rule
		}
	}
}
