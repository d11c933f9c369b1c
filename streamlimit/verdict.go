package streamlimit

import (
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

// Action is what to do with a message.
type Action uint8

const (
	// Pass means that the message is allowed.
	Pass Action = iota
	// Delay is the value of Options.OnExcess that makes Gate.Message wait until the message fits. No verdict has it.
	Delay
	// Drop means to ignore the message and to continue with the next one.
	Drop
	// Close means to close the connection with Verdict.Code and Verdict.Reason.
	Close
)

// Close codes of WebSockets (RFC 6455, and the registry of IANA for 1013).
const (
	codeEnding        = 1001
	codePolicy        = 1008
	codeTryAgainLater = 1013
)

// maxReason is the maximum length of a reason: a close frame has 125 bytes, two of them for the code.
const maxReason = 123

// Verdict is what to do with a message or a connection, and why.
type Verdict struct {
	// Action is Pass, Drop or Close.
	Action Action
	// Code and Reason are the code and the reason to close a WebSocket with, 0 and "" unless Action is Close. The reason is UTF-8 of at
	// most 123 bytes, as close frames require, and names only rules that are exposed to clients.
	Code   int
	Reason string
	// RetryAfter is the wait after which a message like this could pass: 0 if it passes or if the wait is unknown, headgate.Never if it
	// can never pass.
	RetryAfter time.Duration
	// Decision is the Checker's decision if its rules denied the message; otherwise nil. It also names rules that are not exposed.
	Decision *headgate.Decision
}

// ending is the verdict on a message whose context ended while it waited.
var ending = Verdict{Action: Close, Code: codeEnding, Reason: "connection is closing"}

// CloseFor returns the verdict on a connection by a decision on its request, for servers whose clients are browsers: Pass or Close.
//
// A browser does not show a program the status of a failed upgrade: a 429 is the code 1006 without a reason, like any other failure.
// Accept the connection and close it at once instead:
//
//	decision, _ := limiter.Begin(r.Context(), headgate.Request{Attributes: attributes})
//	defer decision.Done(headgate.Outcome{})
//	conn, err := websocket.Accept(w, r, nil)
//	if v := streamlimit.CloseFor(&decision); v.Action == streamlimit.Close {
//		conn.Close(websocket.StatusCode(v.Code), v.Reason)
//	}
func CloseFor(d *headgate.Decision) Verdict {
	if d.Allowed {
		return Verdict{}
	}
	return closing(d, "too many connections", "connection")
}

// closing returns the verdict that closes a connection because of a denial. excess names the reason of an ordinary denial, and what
// names what was denied.
func closing(d *headgate.Decision, excess, what string) Verdict {
	v := Verdict{Action: Close, Code: codePolicy, RetryAfter: d.RetryAfter, Decision: d}
	worst := d.DeniedBy()
	switch {
	case limitfields.Undecided(d):
		v.Code, v.RetryAfter = codeTryAgainLater, 0
		excess = "rate limit unavailable"
	case worst != nil && worst.Limit.Algorithm == headgate.Concurrency && d.RetryAfter != headgate.Never:
		v.Code = codeTryAgainLater
	}
	if d.RetryAfter == headgate.Unknown {
		v.RetryAfter = 0
	}
	v.Reason = excess
	if worst != nil && worst.Exposed {
		v.Reason = fit(excess+": "+limitfields.Name(worst)+" "+limitfields.Reason(worst, what), excess+": "+limitfields.Name(worst), excess)
	}
	if v.RetryAfter > 0 {
		wait := time.Duration(limitfields.RoundUp(v.RetryAfter, time.Second)) * time.Second
		v.Reason = fit(v.Reason+"; retry in "+wait.String(), v.Reason)
	}
	return v
}

// fit returns the first text that a close frame can carry.
func fit(texts ...string) string {
	for _, text := range texts {
		if len(text) <= maxReason && utf8.ValidString(text) {
			return text
		}
	}
	return ""
}
