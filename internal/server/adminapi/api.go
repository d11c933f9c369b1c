// Package adminapi is the HTTP API for operators. It explains why this server would deny a request, with the server's
// own rules and counters, and changes rules, overrides and exemptions if they are in PostgreSQL.
//
// It knows tokens, what callers may do by their role and tenant, and the JSON of requests and responses, which
// openapi.yaml describes. It opens no listener. Package pgrules checks and stores changes.
package adminapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/explain"
	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/internal/server/offenders"
	"github.com/headgate/headgate/internal/server/pgrules"
)

const (
	// storeTimeout and databaseTimeout are shorter than clients' timeouts, so that clients learn what is unavailable.
	storeTimeout    = 3 * time.Second
	databaseTimeout = 20 * time.Second
)

// Options configure the API.
type Options struct {
	// Tokens identifies callers by their token; nil rejects all.
	Tokens Authority
	// Open admits all callers as admin without a token. It is for trying Headgate out, on a loopback address.
	Open bool
	// DB has the rules; nil if they are in files and cannot be changed here.
	DB *pgrules.DB
	// Key returns the key of a subject in Redis; nil without Redis.
	Key func(headgate.Subject) string
	// Redis is the address of Redis without the password; "" without Redis.
	Redis string
	// RulesFrom are the files and directories of the rules.
	RulesFrom []string
	// Normalize rewrites attributes as the data plane does; nil leaves them unchanged.
	Normalize func(headgate.Attributes) error
	// Top and Denials query all nodes for the activity that they have observed; nil if this server does not observe its decisions.
	Top     func(context.Context, offenders.Query) (offenders.Result, fanout.Coverage, error)
	Denials func(context.Context, denials.Query) (denials.Result, fanout.Coverage, error)
	// ReleaseOwn asks all nodes to release the units of a holder; nil if there are no others.
	ReleaseOwn func(context.Context, ReleaseQuery) (ReleaseResult, fanout.Coverage, error)
	// Regions are all regions; nil if there is only one.
	Regions Regions
	// Home returns the home of a subject, and what is wrong with that region if it is another one that does not decide; nil if there is
	// only one region.
	Home func(headgate.Subject) explain.Home
	// Weights are the weights of the regions; nil if there is only one.
	Weights Weights
	// ShowSubjects is how the results of Top and Denials show subjects, from the config: hash or clear.
	ShowSubjects string
	// Log receives a warning about wrong tokens, at most every 10 seconds for each address, and all calls at level debug. nil
	// means slog.Default().
	Log *slog.Logger
}

// New returns the API of a limiter.
func New(limiter *headgate.Limiter, o Options) http.Handler {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Tokens == nil {
		o.Tokens = Authorities{}
	}
	a := &api{Options: o, limiter: limiter, guard: NewGuard(o.Tokens, o.Log)}
	a.handle(routes)
	return a
}

// api is the handler of all endpoints.
type api struct {
	Options
	limiter *headgate.Limiter
	guard   *Guard
	// crossOrigin detects requests that browsers send for pages of other sites.
	crossOrigin http.CrossOriginProtection

	routes []route
	mux    http.ServeMux
	// profiling is locked while a profile is taken.
	profiling sync.Mutex
}

// ServeHTTP serves a call. Without a valid token the response does not even reveal which paths exist.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if rejection := a.checkBrowser(r); rejection != nil {
		rejection.write(w)
		return
	}
	by := Caller{Name: "anonymous", Role: Admin}
	if !a.Open {
		var rejection *problem
		if by, rejection = a.guard.admit(r.Context(), r.Header.Get("Authorization"), r.RemoteAddr); rejection != nil {
			rejection.write(w)
			return
		}
	}
	if rejection := a.guard.throttle(r.Context(), by); rejection != nil {
		rejection.write(w)
		return
	}
	a.Log.DebugContext(r.Context(), "admin API called", "caller", by.Name, "method", r.Method, "path", r.URL.Path)
	a.dispatch(w, r, by)
}
