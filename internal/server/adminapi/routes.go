package adminapi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Where the API has what, as openapi.yaml describes it.
const (
	ExplainPath    = "/v1/explain"
	RulesPath      = "/v1/rate-limit/rules"
	VersionsPath   = "/v1/rate-limit/versions"
	OverridesPath  = "/v1/rate-limit/overrides"
	ExemptionsPath = "/v1/rate-limit/exemptions"
	UsagePath      = "/v1/rate-limit/usage"
	AuditPath      = "/v1/rate-limit/audit"
	NodesPath      = "/v1/rate-limit/nodes"
	TokensPath     = "/v1/rate-limit/tokens" //nolint:gosec // no token
	TopPath        = "/v1/rate-limit/top"
	DenialsPath    = "/v1/rate-limit/denials"
	documentPath   = "/v1/openapi.yaml"
)

//go:embed openapi.yaml
var openapi []byte

// Whether an endpoint serves callers of a tenant.
const (
	// wholeServer denies them: it shows or changes what is of all tenants.
	wholeServer = false
	// perTenant serves them what is their tenant's and nothing else, for which the handler answers: see Caller.owns.
	perTenant = true
)

// What an endpoint needs.
const (
	// inDatabase is for what files do not have.
	inDatabase = true
	anywhere   = false
)

// route is an endpoint and who may use it.
type route struct {
	method, path string
	least        Role
	perTenant    bool
	inDatabase   bool
	serve        func(*api, *call) (any, error)
}

// routes are all endpoints. A new one is a line here, and one in the matrix of the tests.
var routes = []route{
	{http.MethodPost, ExplainPath, Viewer, wholeServer, anywhere, (*api).explain},
	{http.MethodGet, documentPath, Viewer, perTenant, anywhere, (*api).readDocument},

	{http.MethodGet, RulesPath, Viewer, perTenant, inDatabase, (*api).listRules},
	{http.MethodPost, RulesPath, Editor, perTenant, inDatabase, (*api).createRule},
	{http.MethodGet, RulesPath + "/{ruleId}", Viewer, perTenant, inDatabase, (*api).readRule},
	{http.MethodPut, RulesPath + "/{ruleId}", Editor, perTenant, inDatabase, (*api).replaceRule},
	{http.MethodDelete, RulesPath + "/{ruleId}", Editor, perTenant, inDatabase, (*api).disableRule},

	{http.MethodGet, RulesPath + "/{ruleId}/exemptions", Viewer, perTenant, inDatabase, (*api).listExemptions},
	{http.MethodPost, RulesPath + "/{ruleId}/exemptions", Editor, perTenant, inDatabase, (*api).addExemption},
	{http.MethodPost, RulesPath + "/{ruleId}/reset", Editor, perTenant, anywhere, (*api).resetCounter},
	{http.MethodPost, RulesPath + "/{ruleId}/grant", Editor, perTenant, anywhere, (*api).grantUnits},
	{http.MethodGet, UsagePath, Viewer, perTenant, anywhere, (*api).readUsage},
	{http.MethodGet, UsagePath + "/me", Self, perTenant, anywhere, (*api).readOwnUsage},
	{http.MethodGet, UsagePath + "/daily", Viewer, perTenant, inDatabase, (*api).listUsage},
	{http.MethodPost, ExemptionsPath, Editor, wholeServer, inDatabase, (*api).addExemption},
	{http.MethodGet, ExemptionsPath, Viewer, perTenant, inDatabase, (*api).listExemptions},
	{http.MethodDelete, ExemptionsPath + "/{exemptionId}", Editor, perTenant, inDatabase, (*api).removeExemption},

	{http.MethodGet, OverridesPath, Viewer, perTenant, inDatabase, (*api).listOverrides},
	{http.MethodPost, OverridesPath, Editor, perTenant, inDatabase, (*api).setOverrides},
	{http.MethodDelete, OverridesPath + "/{overrideId}", Editor, perTenant, inDatabase, (*api).removeOverride},

	{http.MethodGet, VersionsPath, Viewer, wholeServer, inDatabase, (*api).listVersions},
	{http.MethodPost, VersionsPath, Editor, wholeServer, inDatabase, (*api).publishVersion},
	{http.MethodGet, VersionsPath + "/{version}", Viewer, wholeServer, inDatabase, (*api).readVersion},
	{http.MethodGet, VersionsPath + "/{version}/diff/{other}", Viewer, wholeServer, inDatabase, (*api).compareVersions},
	{http.MethodPost, VersionsPath + "/{version}/rollback", Editor, wholeServer, inDatabase, (*api).rollBack},
	{http.MethodPost, "/v1/rate-limit/validate", Viewer, perTenant, inDatabase, (*api).validate},

	{http.MethodGet, AuditPath, Viewer, perTenant, inDatabase, (*api).listAudit},
	{http.MethodGet, NodesPath, Viewer, wholeServer, inDatabase, (*api).listNodes},
	{http.MethodGet, TokensPath, Admin, wholeServer, inDatabase, (*api).listTokens},
	{http.MethodPost, TokensPath, Admin, wholeServer, inDatabase, (*api).createToken},
	{http.MethodDelete, TokensPath + "/{tokenId}", Admin, wholeServer, inDatabase, (*api).revokeToken},

	{http.MethodGet, TopPath, Viewer, wholeServer, anywhere, (*api).listTop},
	{http.MethodGet, DenialsPath, Viewer, wholeServer, anywhere, (*api).listDenials},
	{http.MethodGet, profilePath, Admin, wholeServer, anywhere, (*api).profile},
}

func (rt *route) String() string { return rt.method + " " + rt.path }

// deny says why a caller may not use the endpoint; nil if it may.
func (rt *route) deny(by Caller) *problem {
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

func (*api) readDocument(c *call) (any, error) {
	c.w.Header().Set("Content-Type", "application/yaml")
	_, _ = c.w.Write(openapi) // whoever is gone is not told
	return written{}, nil
}

// callerKey is where the context of a request has its Caller.
type callerKey struct{}

func (a *api) handle(all []route) {
	a.routes = all
	for i := range all {
		rt := &all[i]
		a.mux.HandleFunc(rt.String(), func(w http.ResponseWriter, r *http.Request) {
			by, _ := r.Context().Value(callerKey{}).(Caller) // if there were none, it would have no role
			timeout := databaseTimeout
			if rt.path == profilePath {
				timeout += longestProfile * time.Second
			}
			ctx, cancel := context.WithTimeout(r.Context(), timeout)
			defer cancel()
			c := &call{r.WithContext(ctx), w, by}
			value, err := a.serve(rt, c)
			if err != nil {
				a.deny(ctx, c, err)
				return
			}
			c.answer(value)
		})
	}
}

// serve lets an endpoint answer a caller who may use it.
func (a *api) serve(rt *route, c *call) (any, error) {
	switch denial := rt.deny(c.by); {
	case denial != nil:
		return nil, denial
	case rt.inDatabase && a.DB == nil:
		return nil, newProblem(http.StatusNotImplemented, "rules are in files; with postgres in the config they can be "+
			"changed here")
	}
	return rt.serve(a, c)
}

// deny answers with a problem. Tenants are not told where our database is.
func (a *api) deny(ctx context.Context, c *call, err error) {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError && p != err { //nolint:errorlint // a problem that was made on purpose
		if !errors.Is(err, context.Canceled) { // else whoever asked is gone
			a.Log.WarnContext(ctx, "the admin API cannot answer", "path", c.URL.Path, "error", err)
		}
		if c.by.Tenant != "" {
			p.Detail = "the database does not answer: try again"
		}
	}
	p.write(c.w)
}

// dispatch lets an endpoint answer, or says what there is.
func (a *api) dispatch(w http.ResponseWriter, r *http.Request, by Caller) {
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, by))
	if _, pattern := a.mux.Handler(r); pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	var here []string
	for i := range a.routes {
		rt := &a.routes[i]
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
	newProblem(http.StatusNotFound, "there is no such path; GET "+documentPath+" says what there is").write(w)
}
