package limitfields

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// ProblemType is the media type of a problem document (RFC 9457).
const ProblemType = "application/problem+json"

const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problem is the body of a denial's response.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies"`
	Error    string   `json:"error"`
	Message  string   `json:"message"`
	Rule     string   `json:"rule"`
	// RetryAfter is nil if the request can never be allowed.
	RetryAfter *int64 `json:"retry_after"`
}

// Problem returns the status and the body of a denial. The status is deniedStatus, or 503 if only the store's failure denies the
// request. retryAfter is the result of RetryAfter.
func Problem(d *headgate.Decision, retryAfter *int64, deniedStatus int) (status int, body []byte) {
	p := newProblem(d, retryAfter)
	if p.Status == 0 {
		p.Status = deniedStatus
	}
	body, _ = json.Marshal(p) // cannot fail: strings and numbers only
	return p.Status, append(body, '\n')
}

// newProblem returns the problem document of a denial. Its Status is 0 for an ordinary denial and 503 if only the store's failure
// denies the request. Rules that are not exposed are not named.
func newProblem(d *headgate.Decision, retryAfter *int64) problem {
	p := problem{
		Type: typeQuotaExceeded, Title: "Quota exceeded", Error: "rate_limit_exceeded",
		Violated: []string{}, Message: "rate limit exceeded", RetryAfter: retryAfter,
	}
	if Undecided(d) {
		p.Type, p.Title, p.Error = typeReducedCapacity, "Temporarily reduced capacity", "rate_limit_unavailable"
		p.Status, p.Message = http.StatusServiceUnavailable, "rate limit unavailable"
	}
	hidden := Hidden(d)
	for i := range d.Limits {
		if l := &d.Limits[i]; l.Denies() && (l.Exposed || l == hidden) {
			p.Violated = append(p.Violated, PublicName(l))
		}
	}
	switch worst := d.DeniedBy(); {
	case worst == nil:
	case worst.Exposed:
		p.Rule, p.Message = worst.Rule, p.Message+": "+Name(worst)+" "+Reason(worst, "request")
	case worst == hidden:
		p.Rule = HiddenName
	}
	switch {
	case retryAfter == nil:
	case *retryAfter == 1:
		p.Message += "; retry in 1 second"
	default:
		p.Message += "; retry in " + strconv.FormatInt(*retryAfter, 10) + " seconds"
	}
	return p
}

// Longer reports whether wait a is longer than wait b. headgate.Never is longer than any other wait, and headgate.Unknown longer than
// none but shorter than any known one.
func Longer(a, b time.Duration) bool {
	switch {
	case a == b || b == headgate.Never:
		return false
	case a == headgate.Never:
		return true
	case a == headgate.Unknown:
		return b == 0
	case b == headgate.Unknown:
		return a > 0
	}
	return a > b
}

// Reason returns why a limit denies a request, as a phrase that follows the limit's name. what is "request" or "call". For a limit
// that is not exposed it reveals no more than the headers do.
func Reason(l *headgate.LimitDecision, what string) string {
	switch {
	case !l.Exposed:
		return "is exceeded"
	case l.Missing != "":
		return "denies " + what + "s without " + l.Missing
	case l.Err != nil:
		return "cannot be checked at the moment"
	case l.RetryAfter == headgate.Never:
		return fmt.Sprintf("allows %s and can never allow a %s of cost %d", allowance(l, what), what, l.Cost)
	}
	return "allows " + allowance(l, what)
}

// allowance returns what a limit allows. The lease of a concurrency limit does not concern clients.
func allowance(l *headgate.LimitDecision, what string) string {
	if l.Limit.Algorithm != headgate.Concurrency {
		return l.Limit.String()
	}
	text := strconv.FormatInt(l.Limit.Count, 10) + " concurrent " + what
	if l.Limit.Count != 1 {
		text += "s"
	}
	return text
}
