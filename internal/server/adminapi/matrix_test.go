package adminapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// entry has the callers that may use an endpoint, independently of routes, and the request of the test.
type entry struct {
	minRole   Role
	perTenant bool
	// request returns a request about an object of a tenant.
	request func(tenant string) *http.Request
	// want is the status for callers that may use the endpoint.
	want int
	// shared endpoints show each tenant its own objects, whatever the request is about.
	shared bool
}

// newMatrix returns a line for every endpoint. Each tenant has a rule of its name, and one that stays in force. Each request is
// about a new object.
func newMatrix(t *testing.T, w *world) map[string]entry {
	t.Helper()
	n := 0
	request := func(what, body string, args ...any) *http.Request {
		n++
		method, path, _ := strings.Cut(fmt.Sprintf(what, args...), " ")
		if !strings.HasPrefix(path, "/v1") && !strings.HasPrefix(path, "/trial") && !strings.HasPrefix(path, "/debug") {
			path = "/v1/rate-limit" + path
		}
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if r.Header.Set("If-Match", "*"); body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		return r
	}
	always := func(what, body string) func(string) *http.Request {
		return func(string) *http.Request { return request(what, body) }
	}
	made := func(what, body, id string) string {
		t.Helper()
		return w.call(t, admin, what, body).want(http.StatusCreated).text(id)
	}
	const ann = `{"subjectType": "user", "subjectValue": "ann"}`
	return map[string]entry{
		"POST /v1/explain": {Viewer, false, func(tenant string) *http.Request {
			return request("POST /v1/explain", `{"attributes": {"tenant": "`+tenant+`"}}`)
		}, 200, false},
		"GET /v1/openapi.yaml":           {Viewer, true, always("GET /v1/openapi.yaml", ""), 200, true},
		"POST /v1/rate-limit/exemptions": {Editor, false, always("POST /exemptions", ann), 201, false},
		"GET /v1/rate-limit/rules":       {Viewer, true, always("GET /rules", ""), 200, true},
		"POST /v1/rate-limit/rules": {Editor, true, func(tenant string) *http.Request {
			const rule = `{"id": "r%d", "match": {"tenant": %q}, "by": ["user"], "limit": "1/s"}`
			return request("POST /rules", fmt.Sprintf(rule, n, tenant))
		}, 201, false},
		"GET /v1/rate-limit/rules/{ruleId}": {Viewer, true, func(tenant string) *http.Request {
			return request("GET /rules/%s", "", tenant)
		}, 200, false},
		"PUT /v1/rate-limit/rules/{ruleId}": {Editor, true, func(tenant string) *http.Request {
			return request("PUT /rules/%s", document(tenant, "7/s"), tenant)
		}, 200, false},
		"DELETE /v1/rate-limit/rules/{ruleId}": {Editor, true, func(tenant string) *http.Request {
			return request("DELETE /rules/%s", "", tenant)
		}, 204, false},
		"GET /v1/rate-limit/rules/{ruleId}/exemptions": {Viewer, true, func(tenant string) *http.Request {
			return request("GET /rules/%s/exemptions", "", tenant)
		}, 200, false},
		"POST /v1/rate-limit/rules/{ruleId}/exemptions": {Editor, true, func(tenant string) *http.Request {
			return request("POST /rules/%s/exemptions", ann, tenant)
		}, 201, false},
		"GET /v1/rate-limit/exemptions": {Viewer, true, always("GET /exemptions", ""), 200, true},
		"DELETE /v1/rate-limit/exemptions/{exemptionId}": {Editor, true, func(tenant string) *http.Request {
			return request("DELETE /exemptions/%s", "", made("POST /rules/"+tenant+"/exemptions", ann, "exemptionId"))
		}, 204, false},
		"GET /v1/rate-limit/overrides": {Viewer, true, always("GET /overrides", ""), 200, true},
		"POST /v1/rate-limit/overrides": {Editor, true, func(tenant string) *http.Request {
			return request("POST /overrides", fmt.Sprintf(subLimit, tenant, tenant))
		}, 201, false},
		"DELETE /v1/rate-limit/overrides/{overrideId}": {Editor, true, func(tenant string) *http.Request {
			return request("DELETE /overrides/%s", "", made("POST /overrides", fmt.Sprintf(subLimit, tenant, tenant), "overrideId"))
		}, 204, false},

		"POST /v1/rate-limit/rules/{ruleId}/reset": {Editor, true, func(tenant string) *http.Request {
			const reset = `{"subject": {"tenant": %q, "user": "ann"}}`
			return request("POST /rules/%s-used/reset", fmt.Sprintf(reset, tenant), tenant)
		}, 200, false},
		"POST /v1/rate-limit/rules/{ruleId}/grant": {Editor, true, func(tenant string) *http.Request {
			const grant = `{"subject": {"tenant": %q, "user": "ann"}, "units": 1}`
			return request("POST /rules/%s-used/grant", fmt.Sprintf(grant, tenant), tenant)
		}, 200, false},
		"POST /v1/rate-limit/rules/{ruleId}/release": {Editor, false, func(tenant string) *http.Request {
			const release = `{"subject": {"tenant": %q}, "holder": %q}`
			return request("POST /rules/slots/release", fmt.Sprintf(release, tenant, beginOne(t, w.limiter, tenant)))
		}, 200, false},
		"GET /v1/rate-limit/usage": {Viewer, true, func(tenant string) *http.Request {
			return request("GET /usage?subjectType=user&subjectId=ann&tenant=%s&ruleId=%s-used", "", tenant, tenant)
		}, 200, false},
		"GET /v1/rate-limit/usage/me": {Self, true, always("GET /usage/me", ""), 200, true},
		"GET /v1/rate-limit/usage/daily": {Viewer, true, func(tenant string) *http.Request {
			return request("GET /usage/daily?subject=tenant=%s", "", tenant)
		}, 200, false},
		"GET /v1/rate-limit/versions":                        {Viewer, false, always("GET /versions", ""), 200, false},
		"POST /v1/rate-limit/versions":                       {Editor, false, always("POST /versions", `{"mode": "enforce"}`), 200, false},
		"GET /v1/rate-limit/versions/{version}":              {Viewer, false, always("GET /versions/1", ""), 200, false},
		"GET /v1/rate-limit/versions/{version}/diff/{other}": {Viewer, false, always("GET /versions/1/diff/1", ""), 200, false},
		"POST /v1/rate-limit/versions/{version}/rollback":    {Editor, false, always("POST /versions/3/rollback", ""), 200, false},
		"POST /v1/rate-limit/validate":                       {Viewer, true, always("POST /validate", document("new", "1/s")), 200, true},
		"GET /v1/rate-limit/audit":                           {Viewer, true, always("GET /audit", ""), 200, true},
		"GET /v1/rate-limit/nodes":                           {Viewer, false, always("GET /nodes", ""), 200, false},
		"GET /v1/rate-limit/tokens":                          {Admin, false, always("GET /tokens", ""), 200, false},
		"POST /v1/rate-limit/tokens":                         {Admin, false, always("POST /tokens", `{"name": "bob"}`), 201, false},
		"DELETE /v1/rate-limit/tokens/{tokenId}": {Admin, false, func(string) *http.Request {
			return request("DELETE /tokens/%s", "", made("POST /tokens", `{"name": "bob"}`, "tokenId"))
		}, 204, false},

		"GET /v1/regions":            {Viewer, false, always("GET /v1/regions", ""), 200, false},
		"GET /v1/regions/weights":    {Viewer, false, always("GET /v1/regions/weights", ""), 200, false},
		"POST /v1/regions/weights":   {Admin, false, always("POST /v1/regions/weights", `{"weights": {"eu": 2}}`), 200, false},
		"GET /v1/rate-limit/top":     {Viewer, false, always("GET /top", ""), 200, false},
		"GET /v1/rate-limit/denials": {Viewer, false, always("GET /denials?attribute=user=ann", ""), 200, false},
		"GET /debug/pprof/{profile}": {Admin, false, always("GET /debug/pprof/goroutine", ""), 200, false},

		// These test the matrix itself.
		"PUT /trial/{tenant}": {Editor, true, func(tenant string) *http.Request {
			return request("PUT /trial/%s", "", tenant)
		}, 204, false},
		"PUT /trial/all":       {Admin, false, always("PUT /trial/all", ""), 204, false},
		"GET /trial/forgotten": {"none", false, always("GET /trial/forgotten", ""), 204, false},
	}
}

const subLimit = `{"rule": %q, "subject": {"tenant": %q, "user": "ann"}, "limit": "3/s"}`

func trial(_ *api, c *call) (any, error) {
	if tenant := c.PathValue("tenant"); tenant != "" && !c.by.owns(tenant) {
		return nil, newProblem(http.StatusNotFound, "there is no tenant "+tenant)
	}
	return nil, nil //nolint:nilnil // an empty response
}

var trials = []route{
	{http.MethodPut, "/trial/{tenant}", Editor, perTenant, anywhere, trial},
	{http.MethodPut, "/trial/all", Admin, wholeServer, anywhere, trial},
	{http.MethodGet, "/trial/forgotten", "", wholeServer, anywhere, trial},
}

// withTrials adds the trials to an API.
func withTrials(a *api) *api {
	a.mux = http.ServeMux{}
	a.handle(append(slices.Clone(routes), trials...))
	return a
}

// send returns the status of the response to a caller, and the detail if it is a problem, otherwise the body.
func send(a *api, r *http.Request, token string) (status int, detail string) {
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return result(w)
}

func result(w *httptest.ResponseRecorder) (status int, detail string) {
	var p problem
	switch {
	case w.Code < 400:
		return w.Code, w.Body.String()
	case json.Unmarshal(w.Body.Bytes(), &p) != nil || p.Status != w.Code:
		return 0, w.Body.String()
	}
	return w.Code, p.Detail
}

// hold sends a request and checks the exchange against openapi.yaml.
func (w *world) hold(t *testing.T, r *http.Request, token string) (status int, detail string) {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	recorder := httptest.NewRecorder()
	w.api.ServeHTTP(recorder, r)
	if !strings.HasPrefix(r.URL.Path, "/trial") {
		w.describe.hold(t, r, string(body), recorder)
	}
	return result(recorder)
}

// TestMatrix calls every endpoint in every role, for the caller's own tenant and for another. Every described operation succeeds once.
func TestMatrix(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(t, editor, document("ours", "9/s"), `{"id": "slots", "by": ["tenant"], "limit": {"concurrent": 100}}`)
	w.create(t, acme, document("acme", "9/s"), document("acme-used", "9/s"))
	w.create(t, globex, document("globex", "9/s"), document("globex-used", "9/s"))
	w.follow(t)
	s := &fakeNodes{}
	w.api.Top, w.api.Denials, w.api.ShowSubjects = s.Top, s.Denials, "clear"
	w.api.Regions, w.api.Weights = &fakeRegions{}, &fakeWeights{}
	matrix := newMatrix(t, w)
	a := withTrials(w.api)
	if len(matrix) != len(a.routes) {
		t.Errorf("the matrix has %d endpoints, the API %d", len(matrix), len(a.routes))
	}
	for i := range a.routes {
		name := a.routes[i].String()
		e, ok := matrix[name]
		if !ok {
			t.Errorf("%s is not in the matrix: add the callers that may use it", name)
			continue
		}
		if status, _ := send(a, e.request("acme"), ""); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", name, status)
		}
		for rank, role := range []Role{"", "root", Self, Viewer, Editor, Admin} {
			for _, tenant := range []string{"", "acme"} {
				for _, target := range []string{"acme", "globex"} {
					status, detail := w.hold(t, e.request(target), string(role)+"."+tenant)
					ok := status == e.want
					switch needed := slices.Index([]Role{"", "", Self, Viewer, Editor, Admin}, e.minRole); {
					case rank < needed || needed < 0:
						ok = status == http.StatusForbidden && strings.Contains(detail, "ann has the role "+string(role)) &&
							(needed < 0 || strings.Contains(detail, "requires the role "+string(e.minRole)))
					case tenant != "" && !e.perTenant:
						ok = status == http.StatusForbidden && strings.HasSuffix(detail, "concerns all tenants, and ann is bound to tenant acme")
					case e.shared && tenant != "":
						ok = status == e.want && !strings.Contains(detail, "globex")
					case tenant != "" && tenant != target:
						ok = status == http.StatusForbidden || status == http.StatusNotFound || status == http.StatusUnprocessableEntity
					}
					if !ok {
						t.Errorf("%s for %s, as %q of %q: %d %s", name, target, role, tenant, status, detail)
					}
				}
			}
		}
	}
	for name := range w.describe.operations() {
		if !w.describe.succeeded[name] {
			t.Errorf("%s did not succeed once", name)
		}
	}
}

// Unknown paths and methods are rejected, and a path with a parameter does not shadow others.
func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	a := withTrials(newFilesAPI(t))
	for request, want := range map[string]string{
		"GET /trial/acme":       "405 method GET not allowed: /trial/acme accepts PUT",
		"GET /trial/all":        "405 method GET not allowed: /trial/all accepts PUT",
		"PUT /trial/":           "404 path not found: GET /v1/openapi.yaml describes all paths",
		"POST /trial/forgotten": "405 method POST not allowed: /trial/forgotten accepts PUT, GET",
	} {
		method, path, _ := strings.Cut(request, " ")
		status, detail := send(a, httptest.NewRequest(method, path, http.NoBody), "viewer.")
		if got := fmt.Sprint(status, " ", detail); got != want {
			t.Errorf("%s: %s", request, got)
		}
	}
	if status, _ := send(a, httptest.NewRequest(http.MethodGet, "/nowhere", http.NoBody), ""); status != http.StatusUnauthorized {
		t.Errorf("%d: a caller without a token learns which paths exist", status)
	}
}

// newFilesAPI returns the API of a server with rules in files.
func newFilesAPI(t *testing.T) *api {
	t.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{ID: "quota", By: []string{"tenant"}, Limit: headgate.PerMinute(10)})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := New(limiter, Options{Tokens: fakeAuthority{}, Log: slog.New(slog.DiscardHandler)}).(*api)
	return a
}

// With rules in files, endpoints that need the database respond with 501.
func TestRulesInFiles(t *testing.T) {
	t.Parallel()
	a := newFilesAPI(t)
	for i := range routes {
		rt := &routes[i]
		status, detail := send(a, httptest.NewRequest(rt.method, rt.path, http.NoBody), admin)
		rejected := status == http.StatusNotImplemented && strings.HasPrefix(detail, "the rules of this server are in files: set postgres")
		if rejected != rt.inDatabase {
			t.Errorf("%s: %d %s", rt, status, detail)
		}
	}
}

// Each caller has its own limit of calls.
func TestThrottle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newFilesAPI(t)
		expect := func(as string, want int) {
			t.Helper()
			if status, _ := send(a, httptest.NewRequest(http.MethodGet, documentPath, http.NoBody), as); status != want {
				t.Errorf("%s: %d, want %d", as, status, want)
			}
		}
		for range callBurst {
			expect(viewer, 200)
		}
		expect(viewer, 429)
		expect(editor, 200)
		expect(acme, 200)
		time.Sleep(time.Second / callsPerSecond)
		expect(viewer, 200)
	})
}

// Without an authority all calls are rejected.
func TestNoAuthority(t *testing.T) {
	t.Parallel()
	a, _ := New(nil, Options{Log: slog.New(slog.DiscardHandler)}).(*api)
	for _, token := range []string{"", "x", "admin."} {
		if status, _ := send(a, httptest.NewRequest(http.MethodPost, ExplainPath, http.NoBody), token); status != http.StatusUnauthorized {
			t.Errorf("%q: %d", token, status)
		}
	}
}
