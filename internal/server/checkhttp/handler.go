package checkhttp

import (
	"bytes"
	"context"
	_ "embed" // the document
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/ratelog"
	"github.com/headgate/headgate/internal/server/check"
)

// Bounds of a body. maxBatch is for batches; at most maxLarge bodies over maxBody are held at a time.
const (
	maxBody  = 64 << 10
	maxBatch = 1 << 20
	maxLarge = 64
)

const (
	pathRefund    = "/v1/refund"
	pathAuthorize = "/v1/authorize"
	pathDocument  = "/v1/openapi.yaml"
)

//go:embed openapi.yaml
var document []byte

// Options configures the handler.
type Options = check.Options

// handler serves all paths.
type handler struct {
	engine     check.Engine
	options    Options
	headers    limitfields.Headers
	failures   ratelog.Limiter
	operations map[string]operation
	authorize  http.Handler
	// crossOrigin rejects requests that browsers send for pages of other sites. It does not apply to forward-auth, where
	// proxies pass on such headers.
	crossOrigin http.CrossOriginProtection
	// large limits the large bodies in memory, and spare the workers of batches in addition to the first of each batch.
	large, spare check.Budget
	// random returns a number from 0 to n-1.
	random func(n int64) int64
}

// operation is an operation invoked by POST.
type operation struct {
	maxBytes int64 // of the body
	do       func(context.Context, []byte) (any, error)
}

// New returns a handler for everything under /v1/ that openapi.yaml describes.
func New(engine check.Engine, o Options) http.Handler { return newHandler(engine, o) }

func newHandler(engine check.Engine, o Options) *handler {
	o = o.Complete()
	h := &handler{
		engine: engine, options: o,
		headers: limitfields.Headers{Choice: o.Headers}, authorize: newAuthorize(engine, o), random: rand.Int64N,
	}
	h.large.Return(maxLarge)
	h.spare.Return(maxSpare)
	h.operations = map[string]operation{
		"/v1/check":       {maxBody, h.check},
		"/v1/check/batch": {maxBatch, h.checkBatch},
		"/v1/peek":        {maxBody, h.decide(engine.Peek)},
		"/v1/release":     {maxBody, h.release},
		"/v1/renew":       {maxBody, h.renew},
		"/v1/reserve":     {maxBody, h.reserve},
		"/v1/extend":      {maxBody, h.extend},
		"/v1/commit":      {maxBody, h.commit},
		"/v1/cancel":      {maxBody, h.cancel},
		pathRefund:        {maxBody, h.decide(engine.Refund)},
	}
	return h
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op, ok := h.operations[r.URL.Path]
	switch {
	case ok:
		h.operate(w, r, op)
	case r.URL.Path == pathAuthorize:
		w.Header().Set("Cache-Control", "no-store")
		h.authorize.ServeHTTP(w, r)
	case r.URL.Path != pathDocument:
		check.Problemf(http.StatusNotFound, "path not found: POST to %s, or GET %s or %s, which describes them",
			strings.Join(slices.Sorted(maps.Keys(h.operations)), ", "), pathAuthorize, pathDocument).Write(w)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		rejectMethod(w, r, "GET, HEAD")
	default:
		check.Respond(w, http.StatusOK, "application/yaml", document)
	}
}

func (h *handler) operate(w http.ResponseWriter, r *http.Request, op operation) {
	if r.Method != http.MethodPost {
		rejectMethod(w, r, http.MethodPost)
		return
	}
	if err := h.crossOrigin.Check(r); err != nil {
		check.Problemf(http.StatusForbidden, "cross-origin request of a browser (%v): send it from a server, "+
			"without Origin and Sec-Fetch-Site", err).Write(w)
		return
	}
	body, release, err := h.read(w, r, op.maxBytes)
	defer release()
	if err == nil && r.URL.Path == pathRefund {
		err = h.checkRefund(r)
	}
	var content any
	if err == nil {
		content, err = op.do(r.Context(), body)
	}
	if err == nil {
		// Numbers, strings and times can always be encoded, except years that no store has.
		body, err = json.Marshal(content)
	}
	if err != nil {
		h.problem(r.Context(), err).Write(w)
		return
	}
	check.Respond(w, http.StatusOK, "application/json", append(body, '\n'))
}

// read returns the body of a request, whose Content-Type must be JSON or absent. The caller must call release when it no
// longer needs the body.
func (h *handler) read(w http.ResponseWriter, r *http.Request, maxBytes int64) (body []byte, release func(), err error) {
	release = func() {}
	if given := r.Header.Get("Content-Type"); given != "" {
		kind, _, err := mime.ParseMediaType(given)
		if err != nil || kind != "application/json" {
			return nil, release, check.Problemf(http.StatusUnsupportedMediaType, "Content-Type %.100q: send JSON, with the header "+
				"Content-Type: application/json or without one; with curl, use --json instead of -d", given)
		}
	}
	if given := r.Header.Get("Content-Encoding"); given != "" && given != "identity" {
		return nil, release, check.Problemf(http.StatusUnsupportedMediaType, "Content-Encoding %.100q: send the body without encoding", given)
	}
	rest := http.MaxBytesReader(w, r.Body, maxBytes)
	body, err = io.ReadAll(io.LimitReader(rest, maxBody+1))
	if err == nil && len(body) > maxBody {
		body, release, err = h.readLarge(body, rest)
	}
	var tooLarge *http.MaxBytesError
	var p *check.Problem
	switch {
	case errors.As(err, &tooLarge):
		err = check.Problemf(http.StatusRequestEntityTooLarge,
			"body larger than %d bytes: send less, and only attributes that rules use", maxBytes)
	case err != nil && !errors.As(err, &p):
		err = check.Problemf(http.StatusBadRequest, "cannot read the body: %v", err)
	}
	return body, release, err
}

// readLarge reads the rest of a large body, unless too many are in memory.
func (h *handler) readLarge(body []byte, rest io.Reader) (all []byte, release func(), err error) {
	if h.large.Take(1) == 0 {
		return nil, func() {}, check.Problemf(http.StatusServiceUnavailable,
			"too many large requests: send at most %d bytes at a time, or try again", maxBody)
	}
	b := bytes.NewBuffer(body)
	_, err = b.ReadFrom(rest)
	return b.Bytes(), func() { h.large.Return(1) }, err
}

func rejectMethod(w http.ResponseWriter, r *http.Request, allowed string) {
	w.Header().Set("Allow", allowed)
	check.Problemf(http.StatusMethodNotAllowed, "%s does not support %.20q: use %s", r.URL.Path, r.Method, allowed).Write(w)
}
