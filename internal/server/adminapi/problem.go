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

// problem is an answer that is none, as RFC 9457 has it. Detail says what to do.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Problems are what is wrong with rules, and where in the body.
	Problems []ruleProblem `json:"problems,omitempty"`

	header http.Header
}

type ruleProblem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Rule    string `json:"rule,omitempty"`
	Problem string `json:"problem"`
}

func newProblem(status int, detail string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: detail}
}

// badRequest is what the API does not understand, unusable what it does and will not do.
func badRequest(format string, args ...any) *problem {
	return newProblem(http.StatusBadRequest, fmt.Sprintf(format, args...))
}

func notFound(format string, args ...any) *problem {
	return newProblem(http.StatusNotFound, fmt.Sprintf(format, args...))
}

func unusable(format string, args ...any) *problem {
	return newProblem(http.StatusUnprocessableEntity, fmt.Sprintf(format, args...))
}

func (p *problem) Error() string { return p.Detail }

// problemOf is what a caller is told of an error. One that nobody has foreseen is the database's, which is away.
func problemOf(err error) *problem {
	var p *problem
	var bad ruledoc.Errors
	var pace *pgrules.ChangeRateError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &pace):
		return tooMany(err.Error(), pace.RetryAfter)
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
			p.Detail = fmt.Sprintf("there are %d problems, the first of them: %s", len(problems), p.Detail)
		}
		return p
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
	encoder.SetEscapeHTML(false) // conditions with && are for people too
	_ = encoder.Encode(value)    // texts and numbers can always be written
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // whoever is gone is not told
}
