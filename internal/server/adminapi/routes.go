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

// The paths of the API, which openapi.yaml describes.
const (
	ExplainPath    = "/v1/explain"
	RulesPath      = "/v1/rate-limit/rules"
	VersionsPath   = "/v1/rate-limit/versions"
	OverridesPath  = "/v1/rate-limit/overrides"
	ExemptionsPath = "/v1/rate-limit/exemptions"
	UsagePath      = "/v1/rate-limit/usage"
	AuditPath      = "/v1/rate-limit/audit"
	NodesPath      = "/v1/rate-limit/nodes"
	TokensPath     = "/v1/rate-limit/tokens" //nolint:gosec // not a token
	TopPath        = "/v1/rate-limit/top"
	DenialsPath    = "/v1/rate-limit/denials"
	documentPath   = "/v1/openapi.yaml"
)

//go:embed openapi.yaml
var openapi []byte

// Whether an endpoint serves callers of a tenant.
const (
	// wholeServer endpoints reject them, since they show or change data of all tenants.
	wholeServer = false
	// perTenant endpoints serve them only data of their tenant. The handler is responsible for that: see Caller.owns.
	perTenant = true
)

// Whether an endpoint needs PostgreSQL.
const (
	// inDatabase endpoints respond with 501 if the rules are in files.
	inDatabase = true
	anywhere   = false
)

// route is an endpoint and the callers that may use it.
type route struct {
	method, path string
	minRole      Role
	perTenant    bool
	inDatabase   bool
	serve        func(*api, *call) (any, error)
}

// routes are all endpoints. A new endpoint needs a line allowed, and one in the matrix of the tests.
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
	{http.MethodPost, RulesPath + "/{ruleId}/release", Editor, wholeServer, anywhere, (*api).releaseHolder},
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

	{http.MethodGet, RegionsPath, Viewer, wholeServer, anywhere, (*api).listRegions},
	{http.MethodGet, WeightsPath, Viewer, wholeServer, anywhere, (*api).readWeights},
	{http.MethodPost, WeightsPath, Admin, wholeServer, anywhere, (*api).changeWeights},
	{http.MethodGet, TopPath, Viewer, wholeServer, anywhere, (*api).listTop},
	{http.MethodGet, DenialsPath, Viewer, wholeServer, anywhere, (*api).listDenials},
	{http.MethodGet, profilePath, Admin, wholeServer, anywhere, (*api).profile},
}

func (rt *route) String() string { return rt.method + " " + rt.path }

// authorize returns nil if a caller may use the endpoint, or why it may not.
func (rt *route) authorize(by Caller) *problem {
	switch {
	case !by.Role.atLeast(rt.minRole):
		return newProblem(http.StatusForbidden, fmt.Sprintf("%s: requires the role %s, and %s has the role %s", rt, rt.minRole,
			by.Name, by.Role))
	case by.Tenant != "" && !rt.perTenant:
		return newProblem(http.StatusForbidden, fmt.Sprintf("%s: concerns all tenants, and %s is bound to tenant %s", rt, by.Name,
			by.Tenant))
	}
	return nil
}

func (*api) readDocument(c *call) (any, error) {
	c.w.Header().Set("Content-Type", "application/yaml")
	_, _ = c.w.Write(openapi) // the client may be gone
	return written{}, nil
}

// callerKey is the context key of a request's Caller.
type callerKey struct{}

func (a *api) handle(all []route) {
	a.routes = all
	for i := range all {
		rt := &all[i]
		a.mux.HandleFunc(rt.String(), func(w http.ResponseWriter, r *http.Request) {
			by, _ := r.Context().Value(callerKey{}).(Caller) // without it the zero Caller has no role
			timeout := databaseTimeout
			if rt.path == profilePath {
				timeout += maxProfileSeconds * time.Second
			}
			ctx, cancel := context.WithTimeout(r.Context(), timeout)
			defer cancel()
			c := &call{r.WithContext(ctx), w, by}
			value, err := a.serve(rt, c)
			if err != nil {
				a.writeError(ctx, c, err)
				return
			}
			c.respond(value)
		})
	}
}

// serve runs an endpoint, if the caller may use it.
func (a *api) serve(rt *route, c *call) (any, error) {
	switch rejection := rt.authorize(c.by); {
	case rejection != nil:
		return nil, rejection
	case rt.inDatabase && a.DB == nil:
		return nil, newProblem(http.StatusNotImplemented, "the rules of this server are in files: set postgres in the config to use "+
			"this endpoint")
	}
	return rt.serve(a, c)
}

// writeError responds with a problem. Tenants do not see the address of the database.
func (a *api) writeError(ctx context.Context, c *call, err error) {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError && p != err { //nolint:errorlint // a problem that a handler returned
		if !errors.Is(err, context.Canceled) { // otherwise the client is gone
			a.Log.WarnContext(ctx, "admin API call failed", "path", c.URL.Path, "error", err)
		}
		if c.by.Tenant != "" {
			p.Detail = "the database is unavailable: try again"
		}
	}
	p.write(c.w)
}

// dispatch runs the endpoint of a request, or responds with a 404 or 405.
func (a *api) dispatch(w http.ResponseWriter, r *http.Request, by Caller) {
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, by))
	if _, pattern := a.mux.Handler(r); pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	var allowed []string
	for i := range a.routes {
		rt := &a.routes[i]
		other := *r
		other.Method = rt.method
		if _, pattern := a.mux.Handler(&other); pattern == rt.String() {
			allowed = append(allowed, rt.method)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		newProblem(http.StatusMethodNotAllowed, fmt.Sprintf("method %s not allowed: %s accepts %s", r.Method, r.URL.Path, strings.Join(allowed, ", "))).write(w)
		return
	}
	newProblem(http.StatusNotFound, "path not found: GET "+documentPath+" describes all paths").write(w)
}
