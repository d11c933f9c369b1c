package checkhttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

func loadDocument(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// conversation returns all exchanges of the files in testdata.
func conversation(t *testing.T) []exchange {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []exchange
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, string(data), func(e exchange) { all = append(all, e) })
	}
	return all
}

// TestDocument compares openapi.yaml with the exchanges in both directions: all responses are described, and all described
// operations and statuses occur.
func TestDocument(t *testing.T) {
	t.Parallel()
	doc := loadDocument(t)
	missing := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				missing[method+" "+path+" "+status] = true
			}
		}
	}
	for _, e := range conversation(t) {
		name := fmt.Sprintf("%s %s %d", e.request.Method, e.request.URL.Path, e.response.Code)
		item := doc.Paths.Find(e.request.URL.Path)
		if item == nil || item.GetOperation(e.request.Method) == nil {
			if e.response.Code != http.StatusNotFound && e.response.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s: not described", name)
			}
			continue
		}
		delete(missing, name)
		if err := conforms(t, doc, item, e); err != nil {
			t.Errorf("%s: %s\n%v", name, e.body, err)
		}
	}
	for name := range missing {
		t.Errorf("%s: described, but does not occur", name)
	}
	h := newTest(t, limiter(t), Options{})
	for path := range h.operations {
		if doc.Paths.Find(path) == nil {
			t.Errorf("%s: not described", path)
		}
	}
}

// conforms compares an exchange with its description. A request with status 200 must conform, too, except batches, whose
// requests have a problem each.
func conforms(t *testing.T, doc *openapi3.T, item *openapi3.PathItem, e exchange) error {
	t.Helper()
	r := e.request.Clone(t.Context())
	r.Body = io.NopCloser(strings.NewReader(e.body))
	if r.Method == http.MethodPost && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	options := &openapi3filter.Options{IncludeResponseStatus: true, SkipSettingDefaults: true}
	input := &openapi3filter.RequestValidationInput{
		Request: r, Options: options, Route: &routers.Route{
			Spec: doc, Path: r.URL.Path, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method),
		},
	}
	err := openapi3filter.ValidateRequest(t.Context(), input)
	batchProblem := strings.Contains(e.response.Body.String(), `{"responses":[{"type"`)
	if e.response.Code == http.StatusOK && err != nil && !batchProblem {
		return fmt.Errorf("request: %w", err)
	}
	return openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: e.response.Code, Header: e.response.Header(), Options: options,
		Body: io.NopCloser(bytes.NewReader(e.response.Body.Bytes())),
	})
}

// TestExamples checks that each example of openapi.yaml is a request that is sent to its operation, or a response with its
// status.
func TestExamples(t *testing.T) {
	t.Parallel()
	doc := loadDocument(t)
	unseen := map[*openapi3.Example]string{}
	collect := func(name string, content openapi3.Content) (examples []*openapi3.Example) {
		for _, media := range content {
			for key, example := range media.Examples {
				unseen[example.Value] = name + " " + key
				examples = append(examples, example.Value)
			}
		}
		return examples
	}
	requests, responses := map[string][]*openapi3.Example{}, map[string][]*openapi3.Example{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			name := method + " " + path
			if operation.RequestBody != nil {
				requests[name] = collect(name, operation.RequestBody.Value.Content)
			}
			for status, response := range operation.Responses.Map() {
				responses[name+" "+status] = collect(name+" "+status, response.Value.Content)
			}
		}
	}
	mark := func(examples []*openapi3.Example, body string) {
		var value any
		if json.Unmarshal([]byte(body), &value) != nil {
			return
		}
		for _, example := range examples {
			if reflect.DeepEqual(example.Value, value) {
				delete(unseen, example)
			}
		}
	}
	for _, e := range conversation(t) {
		name := e.request.Method + " " + e.request.URL.Path
		mark(requests[name], e.body)
		mark(responses[name+" "+strconv.Itoa(e.response.Code)], e.response.Body.String())
	}
	for name := range maps.Values(unseen) {
		t.Errorf("%s: this example is neither sent nor received", name)
	}
}
