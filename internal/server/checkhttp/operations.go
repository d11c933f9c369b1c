package checkhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
)

// maxSpare is how many workers all batches may have together, beyond one for each.
const maxSpare = 1_024

// checkRefund says why a caller may not give units back.
func (h *handler) checkRefund(r *http.Request) error {
	if err := h.options.MayRefund.Judge(r.Context(), r.Header.Get("Authorization"), r.RemoteAddr); err != nil {
		return check.Problemf(http.StatusForbidden, "%v", err)
	}
	return nil
}

// ask is a method of the engine that decides a request.
type ask func(context.Context, headgate.Request) (headgate.Decision, error)

// decide answers one request by what the engine says.
func (h *handler) decide(ask ask) func(context.Context, []byte) (any, error) {
	return func(ctx context.Context, body []byte) (any, error) {
		ctx, req, err := h.readRequest(ctx, body)
		if err != nil {
			return nil, err
		}
		d, err := ask(ctx, req)
		return h.describe(&d, named(req, err))
	}
}

// named says which rule there is not.
func named(req headgate.Request, err error) error {
	if !errors.Is(err, headgate.ErrUnknownRule) {
		return err
	}
	return fmt.Errorf("rule %q: %w", req.Rule, err)
}

// checkBatch decides each request for itself: one that makes no sense is answered with its problem and keeps no other
// from being decided.
func (h *handler) checkBatch(ctx context.Context, body []byte) (any, error) {
	var requests []json.RawMessage
	if err := decode(body, batch, member{"requests", &requests, "a list of requests"}); err != nil {
		return nil, err
	}
	answers, decide := make([]any, len(requests)), h.decide(h.engine.Check)
	borrowed := h.spare.Take(int64(min(len(requests), check.BatchWorkers) - 1))
	defer h.spare.Give(borrowed)
	check.Each(len(requests), 1+borrowed, func(i int) {
		var err error
		if answers[i], err = decide(ctx, requests[i]); err != nil {
			answers[i] = h.problem(ctx, err)
		}
	})
	return struct {
		Responses []any `json:"responses"`
	}{answers}, nil
}

func (h *handler) reserve(ctx context.Context, body []byte) (any, error) {
	var seconds float64
	ctx, req, err := h.readRequest(ctx, body, member{"hold", &seconds, "a number of seconds"})
	if err != nil {
		return nil, err
	}
	hold := span(seconds)
	if err := check.ValidateHold(hold); err != nil {
		return nil, check.Problemf(http.StatusBadRequest, "hold: %v", err)
	}
	held, err := h.engine.Reserve(ctx, req, hold)
	answer, err := h.describe(&held.Decision, named(req, err))
	if err == nil {
		answer.Reservation = tokenText(held.Token)
	}
	return answer, err
}

func (h *handler) commit(ctx context.Context, body []byte) (any, error) {
	var actual headgate.Request
	var text string
	if err := h.decodeRequest(body, &actual, member{"attributes", &actual.Attributes, attributesAre},
		member{"reservation", &text, tokenIs}); err != nil {
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
	if err := decode(body, request, member{"reservation", &text, tokenIs}); err != nil {
		return nil, err
	}
	token, err := tokenOf(text)
	if err != nil {
		return nil, err
	}
	d, err := h.engine.Cancel(ctx, token)
	return h.describe(&d, err)
}

// problem is what a caller is told of an error.
func (h *handler) problem(ctx context.Context, err error) *check.Problem {
	var p *check.Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, headgate.ErrUnknownRule):
		return check.Problemf(http.StatusNotFound, "%v among the rules of this server, version %s: add it, or leave rule out to "+
			"ask all that match", err, h.engine.Rules().Version())
	case errors.Is(err, headgate.ErrInvalidToken):
		return check.Problemf(http.StatusBadRequest,
			"reservation: %v: send what /v1/reserve answered, whole, to a server of the same namespace and secret_file", err)
	}
	check.LogFailure(ctx, h.options.Log, &h.failures, err)
	return check.Problemf(http.StatusServiceUnavailable, "%v: go on without an answer, and do not send a commit, cancel or "+
		"refund again, which may have been recorded", err)
}
