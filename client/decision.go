package client

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
)

// noRule is the rule's name in a decision that no server made.
const noRule = "unanswered"

var (
	errClosed   = fmt.Errorf("%w: client closed", headgate.ErrUnavailable)
	errNoServer = fmt.Errorf("%w: no server available", headgate.ErrUnavailable)
)

// unanswered returns the error of a call that was sent and may have been charged.
func unanswered(cause error) error {
	return fmt.Errorf("%w: %w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered, cause)
}

// undecided returns OnFailure's decision, which is used if no server made one. Its limit carries the error, so that middleware can
// distinguish it from a denial.
func (c *Client) undecided(err error) headgate.Decision {
	allowed := c.options.OnFailure != headgate.FailDeny
	return headgate.Decision{
		Allowed: allowed, Path: headgate.PathFailed,
		Limits: []headgate.LimitDecision{{
			Rule: noRule, Enforced: true, Result: headgate.Result{Allowed: allowed, Err: err},
		}},
	}
}

// decision returns the decision of a finished check.
func (c *Client) decision(w *waiter, err error) (headgate.Decision, error) {
	if err != nil {
		return c.undecided(err), nil
	}
	if w.code != codes.OK {
		return c.failure(w.code, w.message)
	}
	return c.decoded(w.names.decision(w.response))
}

// decoded returns the decision of a server, or OnFailure's decision if the response could not be decoded.
func (c *Client) decoded(d headgate.Decision, err error) (headgate.Decision, error) {
	if err != nil {
		return c.undecided(unanswered(err)), nil
	}
	return d, nil
}

// failure returns the decision for an error status of a server. If the request is invalid, it returns an error and denies nothing.
// Otherwise OnFailure decides.
func (c *Client) failure(code codes.Code, message string) (headgate.Decision, error) {
	switch code {
	case codes.NotFound:
		return unlimited(), fmt.Errorf("%w: %s", headgate.ErrUnknownRule, message)
	case codes.InvalidArgument, codes.PermissionDenied:
		return unlimited(), errors.New("client: " + message)
	}
	return c.undecided(unanswered(fmt.Errorf("%v: %s", code, message))), nil
}

// unlimited returns the decision for a request to which no limit applied.
func unlimited() headgate.Decision { return headgate.Decision{Allowed: true, Path: headgate.PathNone} }
