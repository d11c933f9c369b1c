// Package adminapi is the operators' API over HTTP: it explains why a request would be denied by the server that is
// asked, with that server's rules and counters, and changes rules, overrides and exemptions where those are in
// PostgreSQL.
//
// It knows who has which token, what callers may do by their role and tenant, and the JSON of questions and answers,
// which openapi.yaml describes. It opens no listener. What can be stored is for package pgrules.
package adminapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/internal/server/offenders"
	"github.com/headgate/headgate/internal/server/pgrules"
)

const (
	// storeTimeout and databaseTimeout are shorter than those who ask wait, so that they are told who is away.
	storeTimeout    = 3 * time.Second
	databaseTimeout = 20 * time.Second
)

// Options of the API.
type Options struct {
	// Tokens are of those who may ask; nil means that nobody may.
	Tokens Authority
	// Open lets everybody in as an admin, without a token: to try it, where nobody else can connect.
	Open bool
	// DB has the rules; nil if they are in files, and cannot be changed here.
	DB *pgrules.DB
	// Key is where a subject is in Redis; nil without Redis.
	Key func(headgate.Subject) string
	// Redis is its address without password; "" without Redis.
	Redis string
	// RulesFrom are the files and directories that the rules are from.
	RulesFrom []string
	// Normalize rewrites attributes as the servers read them; nil means that they are taken as they are.
	Normalize func(headgate.Attributes) error
	// Top and Denials ask all nodes what they have seen of their decisions; nil means that nobody looks.
	Top     func(context.Context, offenders.Query) (offenders.Answer, fanout.Coverage, error)
	Denials func(context.Context, denials.Query) (denials.Answer, fanout.Coverage, error)
	// ShowSubjects is what the config says of their answers: hash or clear.
	ShowSubjects string
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
	a := &api{Options: o, limiter: limiter, guard: NewGuard(o.Tokens, o.Log)}
	a.handle(routes)
	return a
}

type api struct {
	Options
	limiter *headgate.Limiter
	guard   *Guard
	// crossOrigin knows what browsers send for pages of other sites.
	crossOrigin http.CrossOriginProtection

	routes []route
	mux    http.ServeMux
	// profiling is held while a profile is taken.
	profiling sync.Mutex
}

// ServeHTTP tells those without a token nothing, not even what there is.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if denial := a.checkBrowser(r); denial != nil {
		denial.write(w)
		return
	}
	by := Caller{Name: "everybody", Role: Admin}
	if !a.Open {
		var denial *problem
		if by, denial = a.guard.admit(r.Context(), r.Header.Get("Authorization"), r.RemoteAddr); denial != nil {
			denial.write(w)
			return
		}
	}
	if denial := a.guard.pace(r.Context(), by); denial != nil {
		denial.write(w)
		return
	}
	a.Log.DebugContext(r.Context(), "admin API asked", "caller", by.Name, "method", r.Method, "path", r.URL.Path)
	a.dispatch(w, r, by)
}
