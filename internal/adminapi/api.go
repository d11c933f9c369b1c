// Package adminapi is the operators' API over HTTP: it explains why a request would be refused by the server that is
// asked, with that server's rules and counters.
//
// It knows who has which token, what callers may do by their role and tenant, and the JSON of questions and answers. It
// opens no listener, and changes nothing.
package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/checkapi"
	"github.com/headgate/headgate/internal/explain"
)

const (
	maxBody = 64 << 10
	// storeTimeout is shorter than those who ask wait, so that they are told that the store is away.
	storeTimeout = 3 * time.Second
)

// Options of the API.
type Options struct {
	// Tokens are of those who may ask; nil means that nobody may.
	Tokens Authority
	// Open lets everybody in as an admin, without a token: to try it, where nobody else can connect.
	Open bool
	// Key is where a subject is in Redis; nil without Redis.
	Key func(headgate.Subject) string
	// Redis is its address without password; "" without Redis.
	Redis string
	// RulesFrom are the files and directories that the rules are from.
	RulesFrom []string
	// Log is told of wrong tokens, at most every 10 seconds for each address, and at level debug of who asked. nil means
	// slog.Default().
	Log *slog.Logger
}

// New makes the API of a limiter.
func New(limiter *headgate.Limiter, o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Tokens == nil {
		o.Tokens = Authorities{}
	}
	a := &api{
		limiter: limiter, place: explain.Place{RulesFrom: o.RulesFrom, Redis: o.Redis, Key: o.Key}, log: o.Log,
		guard: NewGuard(o.Tokens, o.Log), open: o.Open,
	}
	a.handle(routes)
	return a
}

type api struct {
	limiter *headgate.Limiter
	place   explain.Place
	log     *slog.Logger
	guard   *Guard
	open    bool
	routes  []route
	mux     http.ServeMux
}

// ServeHTTP tells those without a token nothing, not even what there is.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	by := Caller{Name: "everybody", Role: Admin}
	if !a.open {
		var refusal *problem
		if by, refusal = a.guard.admit(r.Context(), r.Header.Get("Authorization"), r.RemoteAddr); refusal != nil {
			refusal.write(w)
			return
		}
	}
	a.log.DebugContext(r.Context(), "admin API asked", "caller", by.Name, "method", r.Method, "path", r.URL.Path)
	a.dispatch(w, r, by)
}

func (a *api) explain(w http.ResponseWriter, r *http.Request, _ Caller) {
	q, refusal := readQuestion(w, r)
	if refusal != nil {
		refusal.write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	explanation, err := a.limiter.Explain(ctx, headgate.Request{Attributes: q.Attributes, Cost: q.Cost})
	if err != nil {
		store := "the store"
		if a.place.Redis != "" {
			store = a.place.Redis
		}
		newProblem(http.StatusServiceUnavailable, fmt.Sprintf("%s did not answer: %s", store, err)).write(w)
		return
	}
	var notes []string
	if idle := a.idle(q.Attributes); idle != "" {
		notes = append(notes, idle)
	}
	writeJSON(w, http.StatusOK, "application/json", explain.New(&explanation, q, a.place, notes...))
}

// idle is a note on attributes that nobody looks at. A limiter does not tell by which attributes there are exemptions,
// so that any exemption counts for all that may be.
func (a *api) idle(attributes headgate.Attributes) string {
	var exempt []string
	if _, exemptions := a.limiter.Exceptions().Len(); exemptions > 0 {
		exempt = []string{"api_key", "user", "service_account", "ip"}
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(attributes)), func(name string) bool {
		return name == headgate.OtherPath || name == headgate.OtherMethod
	})
	return explain.Idle(names, a.limiter.Rules(), exempt...)
}

func readQuestion(w http.ResponseWriter, r *http.Request) (q explain.Question, refusal *problem) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return q, newProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", large.Limit))
	}
	if err == nil {
		q, err = parseQuestion(body)
	}
	if err != nil {
		return q, newProblem(http.StatusBadRequest, fmt.Sprintf(`the body is no question: %s; send {"attributes": `+
			`{"method": "POST", "path": "/login", "ip": "192.0.2.1"}, "cost": 1, "all": false}`, err))
	}
	if err := checkapi.Validate(headgate.Request{Attributes: q.Attributes, Cost: q.Cost}); err != nil {
		return q, newProblem(http.StatusBadRequest, err.Error())
	}
	return q, nil
}

// parseQuestion refuses what package json would make something else of: the answer would be to another question.
func parseQuestion(body []byte) (explain.Question, error) {
	var q *explain.Question
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&q)
	_, more := decoder.Token()
	switch {
	case !utf8.Valid(body):
		err = errors.New("it is not UTF-8")
	case err != nil:
	case !errors.Is(more, io.EOF):
		err = errors.New("there is something after it")
	case q == nil:
		err = errors.New("it is null")
	}
	if err != nil {
		return explain.Question{}, err
	}
	return *q, nil
}
