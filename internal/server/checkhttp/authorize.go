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

// authorize answers proxies that ask, for each request, whether it may pass: auth_request of nginx, ForwardAuth of
// Traefik, forward_auth of Caddy. What they send has the headers of that request; its method and URI stand in headers
// besides, of which there are two sets. A proxy writes one of them and passes on what the client put into the other. So
// that a client gains nothing by sending either,
//
//   - they are read only if the peer is a trusted proxy;
//   - if there are both, also if they say the same, nobody can tell which the client wrote, and the request is denied
//     as one that makes no sense. To choose one would let clients choose;
//   - X-Forwarded-Host is read only with X-Forwarded-Uri; beside X-Original-Uri the host is in the header Host;
//   - without a method, which the example in nginx' manual leaves out, rules for any method apply.
//
// A proxy must therefore write a set whole, as Traefik and Caddy do by themselves.
type authorize struct {
	who    *identity.Resolver
	limits http.Handler
	log    *slog.Logger
	bare   sync.Once
	torn   sync.Once
}

func newAuthorize(engine check.Engine, o Options) *authorize {
	limits := httplimit.New(engine, httplimit.Options{
		Identity: originalIdentity{o.Identity}, Log: o.Log,
		Headers: headersOf(o.Headers), DraftVersion: httplimit.DraftVersion(o.Headers.Version), OlderDraft: o.Headers.OlderDraft,
	})
	pass := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}) // which is a 200
	return &authorize{who: o.Identity, limits: limits(pass), log: o.Log}
}

// headersOf returns the choice as package httplimit names it.
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

// originalIdentity makes attributes of original requests, which may have no method.
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
		a.torn.Do(func() { //nolint:contextcheck // it is the context of the request
			a.log.WarnContext(r.Context(), "forward-auth was asked about a request that makes no sense", "problem", err.Detail)
		})
		err.Write(w)
		return
	}
	a.limits.ServeHTTP(w, original)
}

// original is the request that a proxy asks about. If that is not said it is the one that came.
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
		return nil, check.Problemf(http.StatusBadRequest, "there are X-Forwarded-Uri or X-Forwarded-Method and X-Original-URI or "+
			"X-Original-Method: let the proxy set the ones, and remove the others, which only a client can have sent")
	case original.given:
		forwarded = original // without X-Forwarded-Host, which the client may have sent
	}
	if forwarded.uri == "" {
		a.bare.Do(func() { //nolint:contextcheck // as above
			a.log.WarnContext(r.Context(), "forward-auth was not told which request it is asked about, and decides by its own path: "+
				"let the proxy set X-Forwarded-Uri, X-Forwarded-Method and X-Forwarded-Host, and be a trusted one", "peer", r.RemoteAddr)
		})
		return r, nil
	}
	path, query, _ := strings.Cut(forwarded.uri, "?")
	o := r.WithContext(r.Context())
	o.Method, o.RequestURI, o.URL = forwarded.method, forwarded.uri, &url.URL{Path: path, RawQuery: query}
	o.Pattern = "" // the route to this handler is none of the original request
	if forwarded.host != "" {
		o.Host = forwarded.host
	}
	return o, nil
}

// forwardedRequest is what a trusted proxy says of a request. What it does not say is empty.
type forwardedRequest struct {
	given             bool // the URI or the method
	uri, method, host string
}

func (a *authorize) read(r *http.Request, uri, method, host string) (forwardedRequest, *check.Problem) {
	var f forwardedRequest
	for _, field := range []struct {
		name string
		into *string
	}{{uri, &f.uri}, {method, &f.method}, {host, &f.host}} {
		lines := a.who.FromProxy(r, field.name)
		for i, line := range lines {
			line = strings.TrimSpace(line)
			if i > 0 && line != *field.into {
				return forwardedRequest{}, check.Problemf(http.StatusBadRequest,
					"there are several lines of %s that differ: the proxy must set it, not add to it", field.name)
			}
			*field.into = line
		}
		f.given = f.given || len(lines) > 0 && field.name != host
	}
	return f, nil
}
