package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// ExplainPath is where POST takes an explain.Question and answers with an explain.Report.
const ExplainPath = "/v1/explain"

// Whether an endpoint serves callers of a tenant.
const (
	// wholeServer refuses them: it shows or changes what is of all tenants.
	wholeServer = false
	// perTenant serves them what is their tenant's and nothing else, for which the handler answers: see Caller.owns.
	perTenant = true
)

// route is an endpoint and who may use it.
type route struct {
	method, path string
	least        Role
	perTenant    bool
	serve        func(*api, http.ResponseWriter, *http.Request, Caller)
}

// routes are all endpoints. A new one is a line here, and one in the matrix of the tests.
var routes = []route{
	{http.MethodPost, ExplainPath, Viewer, wholeServer, (*api).explain},
}

func (rt *route) String() string { return rt.method + " " + rt.path }

// refuse says why a caller may not use the endpoint; nil if it may.
func (rt *route) refuse(by Caller) *problem {
	switch {
	case !by.Role.atLeast(rt.least):
		return newProblem(http.StatusForbidden, fmt.Sprintf("%s takes the role %s, and %s has the role %s", rt, rt.least,
			by.Name, by.Role))
	case by.Tenant != "" && !rt.perTenant:
		return newProblem(http.StatusForbidden, fmt.Sprintf("%s is about all tenants, and %s is of tenant %s only", rt, by.Name,
			by.Tenant))
	}
	return nil
}

// callerKey is where the context of a request has its Caller.
type callerKey struct{}

func (a *api) handle(all []route) {
	a.routes = all
	for i := range all {
		rt := &all[i]
		a.mux.HandleFunc(rt.String(), func(w http.ResponseWriter, r *http.Request) {
			by, _ := r.Context().Value(callerKey{}).(Caller) // if there were none, it would have no role
			if refusal := rt.refuse(by); refusal != nil {
				refusal.write(w)
				return
			}
			rt.serve(a, w, r, by)
		})
	}
}

// dispatch lets an endpoint answer, or says what there is.
func (a *api) dispatch(w http.ResponseWriter, r *http.Request, by Caller) {
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, by))
	if _, pattern := a.mux.Handler(r); pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	var here, all []string
	for i := range a.routes {
		rt := &a.routes[i]
		all = append(all, rt.String())
		other := *r
		other.Method = rt.method
		if _, pattern := a.mux.Handler(&other); pattern == rt.String() {
			here = append(here, rt.method)
		}
	}
	if len(here) > 0 {
		w.Header().Set("Allow", strings.Join(here, ", "))
		newProblem(http.StatusMethodNotAllowed, fmt.Sprintf("%s takes %s", r.URL.Path, strings.Join(here, ", "))).write(w)
		return
	}
	newProblem(http.StatusNotFound, "there is no such path; there are "+strings.Join(all, ", ")).write(w)
}
