package client

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
)

// noRule stands where a rule would in a decision that no server made.
const noRule = "unanswered"

var (
	errClosed   = fmt.Errorf("%w: the client is closed", headgate.ErrUnavailable)
	errNoServer = fmt.Errorf("%w: no server is there", headgate.ErrUnavailable)
)

// unanswered is the error of what was sent, and may have been charged.
func unanswered(cause error) error {
	return fmt.Errorf("%w: %w: %w", headgate.ErrUnavailable, headgate.ErrUnanswered, cause)
}

// undecided is the decision where no server made one. Its limit is what middleware needs to tell this from a denial.
func (c *Client) undecided(err error) headgate.Decision {
	allowed := c.options.OnFailure != headgate.FailDeny
	return headgate.Decision{
		Allowed: allowed, Path: headgate.PathFailed,
		Limits: []headgate.LimitDecision{{
			Rule: noRule, Enforced: true, Result: headgate.Result{Allowed: allowed, Err: err},
		}},
	}
}

// decision is what became of a check.
func (c *Client) decision(w *waiter, err error) (headgate.Decision, error) {
	if err != nil {
		return c.undecided(err), nil
	}
	if w.code != codes.OK {
		return c.failure(w.code, w.message)
	}
	return c.readable(w.names.decision(w.response))
}

// readable is a decision that a server made, unless it cannot be read.
func (c *Client) readable(d headgate.Decision, err error) (headgate.Decision, error) {
	if err != nil {
		return c.undecided(unanswered(err)), nil
	}
	return d, nil
}

// failure is what a server says in place of a decision: that the request is wrong, which is for the caller to know and
// denies nothing, or that it cannot decide.
func (c *Client) failure(code codes.Code, message string) (headgate.Decision, error) {
	switch code {
	case codes.NotFound:
		return unlimited(), fmt.Errorf("%w: %s", headgate.ErrUnknownRule, message)
	case codes.InvalidArgument, codes.PermissionDenied:
		return unlimited(), errors.New("client: " + message)
	}
	return c.undecided(unanswered(fmt.Errorf("%v: %s", code, message))), nil
}

// unlimited is the decision where no limit applied.
func unlimited() headgate.Decision { return headgate.Decision{Allowed: true, Path: headgate.PathNone} }
