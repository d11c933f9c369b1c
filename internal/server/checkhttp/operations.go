package checkhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
)

// maxSpare is the number of workers of all batches together, in addition to one for each batch.
const maxSpare = 1_024

// checkRefund returns an error if the caller may not refund units.
func (h *handler) checkRefund(r *http.Request) error {
	if err := h.options.MayRefund.Authorize(r.Context(), r.Header.Get("Authorization"), r.RemoteAddr); err != nil {
		return check.Problemf(http.StatusForbidden, "%v", err)
	}
	return nil
}

// decideFunc is a method of the engine that decides a request.
type decideFunc func(context.Context, headgate.Request) (headgate.Decision, error)

// decide returns an operation that decides one request.
func (h *handler) decide(decide decideFunc) func(context.Context, []byte) (any, error) {
	return func(ctx context.Context, body []byte) (any, error) {
		ctx, req, err := h.readRequest(ctx, body)
		if err != nil {
			return nil, err
		}
		d, err := decide(ctx, req)
		return h.describe(&d, err)
	}
}

// check decides one request. If it begins, the response has its slots.
func (h *handler) check(ctx context.Context, body []byte) (any, error) {
	begin := false
	ctx, req, err := h.readRequest(ctx, body, member{"begin", &begin, booleanType})
	if err != nil {
		return nil, err
	}
	if !begin {
		d, err := h.engine.Check(ctx, req)
		return h.describe(&d, err)
	}
	d, held, err := h.options.Slots.Begin(ctx, req, h.engine.Begin)
	response, err := h.describe(&d, err)
	if err == nil {
		response.Slots, response.Lease = tokenText(held.Token), seconds(held.Lease)
	}
	return response, err
}

// found says whether the server had the slots.
type found struct {
	Found any `json:"found"`
}

func (h *handler) release(_ context.Context, body []byte) (any, error) {
	var text string
	var elapsed float64
	var o headgate.Outcome
	if err := decode(body, request, member{"slots", &text, tokenType}, member{"duration", &elapsed, secondsType},
		member{"status", &o.Status, "a whole number"}, member{"cancelled", &o.Cancelled, booleanType}); err != nil {
		return nil, err
	}
	if text == "" {
		return nil, check.Problemf(http.StatusBadRequest, "slots: required: send those of /v1/check; if it returned none, no call is needed")
	}
	o.Duration = span(elapsed)
	return found{h.options.Slots.Release(slotsOf(text), o)}, nil //nolint:contextcheck // releases do not belong to a request
}

func (h *handler) renew(_ context.Context, body []byte) (any, error) {
	var texts []string
	if err := decode(body, slots, member{"slots", &texts, "a list of strings"}); err != nil {
		return nil, err
	}
	if len(texts) == 0 {
		return nil, check.Problemf(http.StatusBadRequest, "slots: required: send those of /v1/check, in a list")
	}
	each := make([]bool, len(texts))
	for i, text := range texts {
		each[i] = h.options.Slots.Renew(slotsOf(text))
	}
	return found{each}, nil
}

// checkBatch decides each request separately: an invalid request gets a problem as its response, and does not affect the others.
func (h *handler) checkBatch(ctx context.Context, body []byte) (any, error) {
	var requests []json.RawMessage
	if err := decode(body, batch, member{"requests", &requests, "a list of requests"}); err != nil {
		return nil, err
	}
	responses := make([]any, len(requests))
	borrowed := h.spare.Take(int64(min(len(requests), check.BatchWorkers) - 1))
	defer h.spare.Return(borrowed)
	check.Each(len(requests), 1+borrowed, func(i int) {
		var err error
		if responses[i], err = h.check(ctx, requests[i]); err != nil {
			responses[i] = h.problem(ctx, err)
		}
	})
	return struct {
		Responses []any `json:"responses"`
	}{responses}, nil
}

func (h *handler) reserve(ctx context.Context, body []byte) (any, error) {
	var seconds float64
	ctx, req, err := h.readRequest(ctx, body, member{"hold", &seconds, secondsType})
	if err != nil {
		return nil, err
	}
	hold, err := holdOf(seconds)
	if err != nil {
		return nil, err
	}
	held, err := h.engine.Reserve(ctx, req, hold)
	return h.describeReservation(&held, err)
}

func (h *handler) extend(ctx context.Context, body []byte) (any, error) {
	var text string
	var usedBody, expectedBody json.RawMessage
	var seconds float64
	if err := decode(body, request, member{"reservation", &text, tokenType}, member{"used", &usedBody, requestType},
		member{"expected", &expectedBody, requestType}, member{"hold", &seconds, secondsType}); err != nil {
		return nil, err
	}
	token, err := tokenOf(text)
	if err != nil {
		return nil, err
	}
	hold, err := holdOf(seconds)
	if err != nil {
		return nil, err
	}
	var used headgate.Request
	if err := h.decodeRequest(part(usedBody), &used, member{"attributes", &used.Attributes, attributesType}); err != nil {
		return nil, inMember("used", err)
	}
	ctx, expected, err := h.readRequest(ctx, part(expectedBody))
	if err != nil {
		return nil, inMember("expected", err)
	}
	held, err := h.engine.Extend(ctx, token, used, expected, hold)
	return h.describeReservation(&held, err)
}

// describeReservation returns the response for a reservation, or err if it is not nil.
func (h *handler) describeReservation(held *headgate.Reservation, err error) (any, error) {
	response, err := h.describe(&held.Decision, err)
	if err == nil {
		response.Reservation, response.Covered = tokenText(held.Token), &held.Covered
	}
	return response, err
}

func (h *handler) commit(ctx context.Context, body []byte) (any, error) {
	var actual headgate.Request
	var text string
	if err := h.decodeRequest(body, &actual, member{"attributes", &actual.Attributes, attributesType},
		member{"reservation", &text, tokenType}); err != nil {
		return nil, err
	}
	token, err := tokenOf(text)
	if err != nil {
		return nil, err
	}
	d, err := h.engine.Commit(ctx, token, actual)
	return h.describe(&d, err)
}

func (h *handler) cancel(ctx context.Context, body []byte) (any, error) {
	var text string
	if err := decode(body, request, member{"reservation", &text, tokenType}); err != nil {
		return nil, err
	}
	token, err := tokenOf(text)
	if err != nil {
		return nil, err
	}
	d, err := h.engine.Cancel(ctx, token)
	return h.describe(&d, err)
}

// problem converts an error to the response of the caller.
func (h *handler) problem(ctx context.Context, err error) *check.Problem {
	var p *check.Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, headgate.ErrUnknownRule):
		return check.Problemf(http.StatusNotFound, "%v, in version %s of the rules of this server: add it, or omit rule to "+
			"check all matching rules", err, h.engine.Rules().Version())
	case errors.Is(err, headgate.ErrInvalidToken):
		return check.Problemf(http.StatusBadRequest,
			"reservation: %v: send the complete reservation of /v1/reserve to a server with the same namespace, secret_file and region", err)
	}
	check.LogFailure(ctx, h.options.Log, &h.failures, err)
	return check.Problemf(http.StatusServiceUnavailable, "%v: continue without a decision, and do not repeat a commit, cancel or "+
		"refund, which may have been recorded", err)
}
