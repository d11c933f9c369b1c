package limitfields

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// problem is the body of a denial.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies"`
	Error    string   `json:"error"`
	Message  string   `json:"message"`
	Rule     string   `json:"rule"`
	// RetryAfter is nil if the request can never pass.
	RetryAfter *int64 `json:"retry_after"`
}

// Problem is the status and the body of a denial: denied, or 503 if nothing but the store is to blame. again is what
// RetryAfter returned.
func Problem(d *headgate.Decision, again *int64, denied int) (status int, body []byte) {
	p := newProblem(d, again)
	if p.Status == 0 {
		p.Status = denied
	}
	body, _ = json.Marshal(p) // strings and numbers can always be written
	return p.Status, append(body, '\n')
}

// newProblem says why; its Status is 0 if it is that of denials. Rules that are not exposed are
// not named.
func newProblem(d *headgate.Decision, again *int64) problem {
	p := problem{
		Type: typeQuotaExceeded, Title: "Quota exceeded", Error: "rate_limit_exceeded",
		Violated: []string{}, Message: "too many requests", RetryAfter: again,
	}
	if Undecided(d) {
		p.Type, p.Title, p.Error = typeReducedCapacity, "Temporarily reduced capacity", "rate_limit_unavailable"
		p.Status, p.Message = http.StatusServiceUnavailable, "requests cannot be counted at present"
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
		p.Rule, p.Message = worst.Rule, Name(worst)+" "+Reason(worst, "request")
	case worst == hidden:
		p.Rule = HiddenName
	}
	switch {
	case again == nil:
	case *again == 1:
		p.Message += "; try again in 1 second"
	default:
		p.Message += "; try again in " + strconv.FormatInt(*again, 10) + " seconds"
	}
	return p
}

// Longer compares waits, of which Never is the longest.
func Longer(a, b time.Duration) bool {
	return b != headgate.Never && (a == headgate.Never || a > b)
}

// Reason returns why a limit denies a request, to be read behind its name; what is "request" or "call". Of a limit that is not
// exposed it says no more than headers do.
func Reason(l *headgate.LimitDecision, what string) string {
	switch {
	case !l.Exposed:
		return "allows no more at present"
	case l.Missing != "":
		return "denies " + what + "s without " + l.Missing
	case l.Err != nil:
		return "cannot be counted at present"
	case l.RetryAfter == headgate.Never:
		return fmt.Sprintf("allows %s, and never a %s that costs %d", l.Limit, what, l.Cost)
	}
	return "allows " + l.Limit.String()
}
