package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/ruledoc"
)

// problem is an error response as defined by RFC 9457. Detail contains the remedy.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Problems are the errors in rules, with their position in the body.
	Problems []ruleProblem `json:"problems,omitempty"`

	header http.Header
}

// ruleProblem is an error in a rule. Line and Column are 0 if it has no position.
type ruleProblem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Rule    string `json:"rule,omitempty"`
	Problem string `json:"problem"`
}

func newProblem(status int, detail string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: detail}
}

// badRequest returns a problem for a malformed request. For a well-formed but invalid request use unprocessable.
func badRequest(format string, args ...any) *problem {
	return newProblem(http.StatusBadRequest, fmt.Sprintf(format, args...))
}

func notFound(format string, args ...any) *problem {
	return newProblem(http.StatusNotFound, fmt.Sprintf(format, args...))
}

func unprocessable(format string, args ...any) *problem {
	return newProblem(http.StatusUnprocessableEntity, fmt.Sprintf(format, args...))
}

func (p *problem) Error() string { return p.Detail }

// problemOf returns the response to an error. All unknown errors are errors of the database, which is unavailable.
func problemOf(err error) *problem {
	var p *problem
	var bad ruledoc.Errors
	var rate *pgrules.ChangeRateError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &rate):
		return tooMany(err.Error(), rate.RetryAfter)
	case errors.Is(err, pgrules.ErrNotFound):
		return newProblem(http.StatusNotFound, err.Error())
	case errors.Is(err, pgrules.ErrConflict):
		return newProblem(http.StatusConflict, err.Error())
	case errors.Is(err, pgrules.ErrRejected):
		return newProblem(http.StatusUnprocessableEntity, err.Error())
	case errors.As(err, &bad):
		problems := problemsOf(bad)
		p := newProblem(http.StatusUnprocessableEntity, problems[0].Problem)
		if p.Problems = problems; len(problems) > 1 {
			p.Detail = fmt.Sprintf("%d problems, the first: %s", len(problems), p.Detail)
		}
		return p
	}
	if errors.Is(err, pgrules.ErrReadOnly) {
		return newProblem(http.StatusServiceUnavailable, err.Error())
	}
	p = newProblem(http.StatusServiceUnavailable, err.Error()+": try again")
	p.header = http.Header{"Retry-After": {"5"}}
	return p
}

func problemsOf(bad ruledoc.Errors) []ruleProblem {
	problems := make([]ruleProblem, len(bad))
	for i, e := range bad {
		problems[i] = ruleProblem{e.Line, e.Column, e.Rule, e.Problem}
	}
	return problems
}

func (p *problem) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.header)
	writeJSON(w, p.Status, "application/problem+json", p)
}

func writeJSON(w http.ResponseWriter, status int, contentType string, value any) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // keep && in conditions readable
	_ = encoder.Encode(value)    // strings and numbers can always be encoded
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client may be gone
}
