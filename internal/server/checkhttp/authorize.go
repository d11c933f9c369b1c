package checkhttp

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/server/check"
)

// authorize implements forward-auth: proxies ask for each request whether it is allowed (auth_request of nginx, ForwardAuth
// of Traefik, forward_auth of Caddy). The request of the proxy has the headers of the original request. The original method
// and URI are in additional headers, of which there are two sets. A proxy writes one set and passes on whatever the client
// sent in the other. So that a client gains nothing by sending either,
//
//   - the headers are read only if the peer is a trusted proxy;
//   - a request with both sets is rejected, even if they agree: the server cannot determine which one the client wrote, and to choose one
//     would let the client choose;
//   - X-Forwarded-Host is read only with X-Forwarded-Uri; with X-Original-Uri the host is in the Host header;
//   - without a method, which the example in the nginx manual omits, rules for any method apply.
//
// A proxy must therefore write all headers of one set, as Traefik and Caddy do by default.
type authorize struct {
	identity *identity.Resolver
	limiter  http.Handler
	log      *slog.Logger
	missing  sync.Once // logs a request without the headers
	invalid  sync.Once // logs an invalid request
}

func newAuthorize(engine check.Engine, o Options) *authorize {
	limiter := httplimit.New(checkOnly{engine}, httplimit.Options{
		Identity: originalIdentity{o.Identity}, Log: o.Log,
		Headers: headersOf(o.Headers), DraftVersion: httplimit.DraftVersion(o.Headers.Version), OlderDraft: o.Headers.OlderDraft,
	})
	pass := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}) // responds 200
	return &authorize{identity: o.Identity, limiter: limiter(pass), log: o.Log}
}

// checkOnly hides the method Begin of an engine: the proxy does not report the end of requests, so concurrency limits must not apply.
type checkOnly struct{ httplimit.Checker }

// headersOf converts the choice of headers to the options of package httplimit.
func headersOf(c limitfields.Choice) httplimit.Headers {
	switch {
	case c.Draft && c.Legacy:
		return httplimit.Both
	case c.Draft:
		return httplimit.Draft
	case c.Legacy:
		return httplimit.Legacy
	}
	return httplimit.Off
}

// originalIdentity returns the attributes of original requests, which may have no method.
type originalIdentity struct{ *identity.Resolver }

func (i originalIdentity) Attributes(r *http.Request, names ...string) headgate.Attributes {
	attributes := i.Resolver.Attributes(r, names...)
	if r.Method == "" {
		attributes[headgate.OtherMethod] = headgate.AnyMethod
	}
	return attributes
}

func (a *authorize) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	original, err := a.original(r)
	if err != nil {
		a.invalid.Do(func() { //nolint:contextcheck // it uses the context of the request
			a.log.WarnContext(r.Context(), "invalid forward-auth request", "problem", err.Detail)
		})
		err.Write(w)
		return
	}
	a.limiter.ServeHTTP(w, original)
}

// original returns the request that the proxy asks about, or r if the headers are missing.
func (a *authorize) original(r *http.Request) (*http.Request, *check.Problem) {
	forwarded, err := a.read(r, "X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Host")
	if err != nil {
		return nil, err
	}
	original, err := a.read(r, "X-Original-Uri", "X-Original-Method", "")
	switch {
	case err != nil:
		return nil, err
	case forwarded.given && original.given:
		return nil, check.Problemf(http.StatusBadRequest, "both X-Forwarded-Uri or X-Forwarded-Method and X-Original-URI or "+
			"X-Original-Method: configure the proxy to set one pair and to remove the other, which only a client can have sent")
	case original.given:
		forwarded = original // without X-Forwarded-Host, which the client may have sent
	}
	if forwarded.uri == "" {
		a.missing.Do(func() { //nolint:contextcheck // as above
			a.log.WarnContext(r.Context(), "forward-auth request without the original URI: decided by its own path; configure the proxy to "+
				"set X-Forwarded-Uri, X-Forwarded-Method and X-Forwarded-Host, and add it to the trusted proxies", "peer", r.RemoteAddr)
		})
		return r, nil
	}
	path, query, _ := strings.Cut(forwarded.uri, "?")
	o := r.WithContext(r.Context())
	o.Method, o.RequestURI, o.URL = forwarded.method, forwarded.uri, &url.URL{Path: path, RawQuery: query}
	o.Pattern = "" // the route of this handler is not that of the original request
	if forwarded.host != "" {
		o.Host = forwarded.host
	}
	return o, nil
}

// forwardedRequest contains what a trusted proxy reports about the original request. Missing values are empty.
type forwardedRequest struct {
	given             bool // the URI or the method is set
	uri, method, host string
}

func (a *authorize) read(r *http.Request, uri, method, host string) (forwardedRequest, *check.Problem) {
	var f forwardedRequest
	for _, field := range []struct {
		name string
		into *string
	}{{uri, &f.uri}, {method, &f.method}, {host, &f.host}} {
		lines := a.identity.FromProxy(r, field.name)
		for i, line := range lines {
			line = strings.TrimSpace(line)
			if i > 0 && line != *field.into {
				return forwardedRequest{}, check.Problemf(http.StatusBadRequest,
					"%s: several different values: configure the proxy to set the header, not to append to it", field.name)
			}
			*field.into = line
		}
		f.given = f.given || len(lines) > 0 && field.name != host
	}
	return f, nil
}
