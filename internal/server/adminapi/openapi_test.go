package adminapi

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// description is openapi.yaml, and the operations that were called successfully.
type description struct {
	document *openapi3.T

	mu        sync.Mutex
	succeeded map[string]bool // operations that succeeded
}

func readDescription(t *testing.T) *description {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(openapi)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &description{document: document, succeeded: map[string]bool{}}
}

// find returns the operation of a request, and its path parameters.
func (d *description) find(r *http.Request) (*routers.Route, map[string]string) {
	given := strings.Split(r.URL.Path, "/")
	for path, item := range d.document.Paths.Map() {
		parts := strings.Split(path, "/")
		parameters := map[string]string{}
		matches := len(parts) == len(given) && item.GetOperation(r.Method) != nil
		for i := range parts {
			if name, ok := strings.CutPrefix(parts[i], "{"); matches && ok {
				parameters[strings.TrimSuffix(name, "}")] = given[i]
			} else {
				matches = matches && parts[i] == given[i]
			}
		}
		if matches {
			return &routers.Route{
				Spec: d.document, Path: path, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method),
			}, parameters
		}
	}
	return nil, nil
}

// hold checks an exchange against openapi.yaml: every response, and the requests that succeeded.
func (d *description) hold(t *testing.T, r *http.Request, body string, w *httptest.ResponseRecorder) {
	t.Helper()
	route, parameters := d.find(r)
	if route == nil {
		t.Errorf("%s %s is not described", r.Method, r.URL)
		return
	}
	r.Body = io.NopCloser(strings.NewReader(body))
	options := &openapi3filter.Options{
		IncludeResponseStatus: true, SkipSettingDefaults: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters, Route: route, Options: options}
	if w.Code < 300 {
		if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil {
			t.Errorf("%s %s %s: %v", r.Method, r.URL, body, err)
		}
		d.mu.Lock()
		d.succeeded[r.Method+" "+route.Path] = true
		d.mu.Unlock()
	}
	err := openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: w.Code, Header: w.Header(), Options: options,
		Body: io.NopCloser(bytes.NewReader(w.Body.Bytes())),
	})
	if err != nil {
		t.Errorf("%s %s: %d %s: %v", r.Method, r.URL, w.Code, w.Body, err)
	}
}

// operations returns all described operations, such as "GET /v1/…".
func (d *description) operations() map[string]bool {
	all := map[string]bool{}
	for path, item := range d.document.Paths.Map() {
		for method := range item.Operations() {
			all[method+" "+path] = true
		}
	}
	return all
}

// openapi.yaml describes exactly the endpoints.
func TestDescription(t *testing.T) {
	t.Parallel()
	described := readDescription(t).operations()
	for i := range routes {
		if name := routes[i].String(); !described[name] {
			t.Errorf("%s is not in openapi.yaml", name)
		} else {
			delete(described, name)
		}
	}
	for name := range described {
		t.Errorf("%s is in openapi.yaml and not in routes", name)
	}
}
