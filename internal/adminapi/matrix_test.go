package adminapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// entry is who may use an endpoint, said once more than in routes, and how the test asks it.
type entry struct {
	least     Role
	perTenant bool
	// ask is about something that a tenant has.
	ask func(tenant string) *http.Request
	// want is what those who may are answered.
	want int
}

// matrix has a line for every endpoint.
var matrix = map[string]entry{
	"POST /v1/explain": {Viewer, false, func(tenant string) *http.Request {
		return httptest.NewRequest(http.MethodPost, ExplainPath, strings.NewReader(`{"attributes": {"tenant": "`+tenant+`"}}`))
	}, http.StatusOK},

	// These show what the others are judged by.
	"PUT /trial/{tenant}": {Editor, true, func(tenant string) *http.Request {
		return httptest.NewRequest(http.MethodPut, "/trial/"+tenant, http.NoBody)
	}, http.StatusNoContent},
	"PUT /trial/all": {Admin, false, func(string) *http.Request {
		return httptest.NewRequest(http.MethodPut, "/trial/all", http.NoBody)
	}, http.StatusNoContent},
	"GET /trial/forgotten": {"nobody", false, func(string) *http.Request {
		return httptest.NewRequest(http.MethodGet, "/trial/forgotten", http.NoBody)
	}, http.StatusNoContent},
}

func trial(_ *api, w http.ResponseWriter, r *http.Request, by Caller) {
	if tenant := r.PathValue("tenant"); tenant != "" && !by.owns(tenant) {
		newProblem(http.StatusNotFound, "there is no tenant "+tenant).write(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

var trials = []route{
	{http.MethodPut, "/trial/{tenant}", Editor, perTenant, trial},
	{http.MethodPut, "/trial/all", Admin, wholeServer, trial},
	{http.MethodGet, "/trial/forgotten", "", wholeServer, trial},
}

// says is an authority whose tokens are ROLE.TENANT.
type says struct{}

func (says) Caller(_ context.Context, token string) (Caller, error) {
	role, tenant, ok := strings.Cut(token, ".")
	if !ok {
		return Caller{}, errUnknown
	}
	return Caller{"ann", Role(role), tenant}, nil
}

func newMatrixAPI(t *testing.T) *api {
	t.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := New(limiter, Options{Tokens: says{}, Log: slog.New(slog.DiscardHandler)}).(*api)
	a.mux = http.ServeMux{}
	a.handle(append(slices.Clone(routes), trials...))
	return a
}

// ask is what a caller is answered, and the detail if that is a problem.
func ask(a *api, r *http.Request, token string) (status int, detail string) {
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	var p problem
	if w.Code >= 400 && (json.Unmarshal(w.Body.Bytes(), &p) != nil || p.Status != w.Code) {
		return 0, w.Body.String()
	}
	return w.Code, p.Detail
}

// TestMatrix asks every endpoint in every role, for the caller's own tenant and for another.
func TestMatrix(t *testing.T) {
	t.Parallel()
	a := newMatrixAPI(t)
	if len(matrix) != len(a.routes) {
		t.Errorf("the matrix has %d endpoints, the API %d", len(matrix), len(a.routes))
	}
	for i := range a.routes {
		name := a.routes[i].String()
		e, ok := matrix[name]
		if !ok {
			t.Errorf("%s is not in the matrix: say who may use it", name)
			continue
		}
		if status, _ := ask(a, e.ask("acme"), ""); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", name, status)
		}
		for rank, role := range []Role{"", "root", Viewer, Editor, Admin} {
			for _, tenant := range []string{"", "acme"} {
				for _, about := range []string{"acme", "globex"} {
					status, detail := ask(a, e.ask(about), string(role)+"."+tenant)
					ok := status == e.want
					switch least := slices.Index([]Role{"", "", Viewer, Editor, Admin}, e.least); {
					case rank < least || least < 0:
						ok = status == http.StatusForbidden && strings.Contains(detail, "ann has the role "+string(role)) &&
							(least < 0 || strings.Contains(detail, "takes the role "+string(e.least)))
					case tenant != "" && !e.perTenant:
						ok = status == http.StatusForbidden && strings.HasSuffix(detail, "is about all tenants, and ann is of tenant acme only")
					case tenant != "" && tenant != about:
						ok = status == http.StatusForbidden || status == http.StatusNotFound
					}
					if !ok {
						t.Errorf("%s about %s, as %q of %q: %d %s", name, about, role, tenant, status, detail)
					}
				}
			}
		}
	}
}

// Neither what is nowhere nor another method is an endpoint; a path with a name in it takes nothing from others.
func TestNowhere(t *testing.T) {
	t.Parallel()
	a := newMatrixAPI(t)
	for request, want := range map[string]string{
		"GET /trial/acme": "405 /trial/acme takes PUT",
		"GET /trial/all":  "405 /trial/all takes PUT",
		"PUT /trial/": "404 there is no such path; there are POST /v1/explain, PUT /trial/{tenant}, PUT /trial/all, " +
			"GET /trial/forgotten",
		"POST /trial/forgotten": "405 /trial/forgotten takes PUT, GET",
	} {
		method, path, _ := strings.Cut(request, " ")
		status, detail := ask(a, httptest.NewRequest(method, path, http.NoBody), "viewer.")
		if got := fmt.Sprint(status, " ", detail); got != want {
			t.Errorf("%s: %s", request, got)
		}
	}
	if status, _ := ask(a, httptest.NewRequest(http.MethodGet, "/nowhere", http.NoBody), ""); status != http.StatusUnauthorized {
		t.Errorf("%d: those without a token are told what there is", status)
	}
}

// Without tokens nobody is let in.
func TestNobody(t *testing.T) {
	t.Parallel()
	a, _ := New(nil, Options{Log: slog.New(slog.DiscardHandler)}).(*api)
	for _, token := range []string{"", "x", "admin."} {
		if status, _ := ask(a, httptest.NewRequest(http.MethodPost, ExplainPath, http.NoBody), token); status != http.StatusUnauthorized {
			t.Errorf("%q: %d", token, status)
		}
	}
}
