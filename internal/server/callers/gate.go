package callers

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/ratelog"
)

// Header is the HTTP header, and gRPC metadata key, of a caller's token. It is not Authorization, which gateways forward from
// clients and which identifies the client.
const Header = "X-Headgate-Token"

// logEvery is the minimum interval between log records about the same peer.
const logEvery = 10 * time.Minute

// Reasons for a rejection, in metrics and logs.
const (
	noToken       = "no_token"
	unknownToken  = "unknown_token"
	unknownName   = "unknown_name"
	noCertificate = "no_certificate"
)

// Reasons returns all reasons for a rejection.
func Reasons() []string { return []string{noToken, unknownToken, unknownName, noCertificate} }

// details contains the messages to rejected callers. They name the remedy and nothing that helps to guess a token.
var details = map[string]string{
	noToken: "no token: send " + Header + "; headgate token create NAME --role caller creates one, and its line for " +
		"the file in listen.tokens_file",
	unknownToken: "unknown token: send a token of the role caller whose line is in the file in listen.tokens_file",
	unknownName:  "the certificate has none of the names in listen.tls.client_names: use another, or add its name",
}

// Options configures a Gate. Without Token and Names, all callers are accepted.
type Options struct {
	// Token reports whether a token is valid. It is nil if callers need no token.
	Token func(token string) bool
	// Names lists DNS names and URIs. A caller's certificate must contain one of them. If Names is empty, every certificate
	// is accepted.
	Names []string
	// Rejected is called for each rejected call.
	Rejected func(listener, reason string)
	Log      *slog.Logger
}

// Gate accepts or rejects callers. It is safe for concurrent use.
type Gate struct {
	options Options
	logged  ratelog.Limiter // by listener, peer and reason

	mu   sync.Mutex
	last Rejection
}

// Rejection describes the last rejected call, and counts those since the start.
type Rejection struct {
	Count    int64     `json:"rejected"`
	At       time.Time `json:"last"`
	Listener string    `json:"listener"`
	Peer     string    `json:"peer"`
	Reason   string    `json:"reason"`
}

// New returns a gate.
func New(o Options) *Gate {
	return &Gate{options: o, logged: ratelog.Limiter{Every: logEvery}}
}

// Last returns the last rejection; its count is 0 if there was none.
func (g *Gate) Last() Rejection {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// open reports whether all callers are accepted.
func (g *Gate) open() bool { return g.options.Token == nil && len(g.options.Names) == 0 }

// authorize returns the reason to reject a caller, or "".
func (g *Gate) authorize(tokens []string, certificate *x509.Certificate) (reason string) {
	if g.options.Token != nil {
		switch {
		case len(tokens) == 0 || len(tokens) == 1 && tokens[0] == "":
			return noToken
		case len(tokens) > 1 || !g.options.Token(tokens[0]): // if there are several, one may be from a client
			return unknownToken
		}
	}
	if len(g.options.Names) > 0 && !g.hasName(certificate) {
		return unknownName
	}
	return ""
}

// hasName reports whether a certificate contains one of the names. The common name does not count: authorities do not verify it.
func (g *Gate) hasName(c *x509.Certificate) bool {
	if c == nil {
		return false
	}
	return slices.ContainsFunc(g.options.Names, func(name string) bool {
		if strings.Contains(name, ":") {
			return slices.ContainsFunc(c.URIs, func(uri *url.URL) bool { return uri.String() == name })
		}
		return slices.ContainsFunc(c.DNSNames, func(dns string) bool { return strings.EqualFold(dns, name) })
	})
}

// Handshake returns a function to call when a TLS handshake fails because of the caller's certificate.
func (g *Gate) Handshake(listener string) func(remote net.Addr, err error) {
	return func(remote net.Addr, err error) {
		g.reject(context.Background(), listener, noCertificate, remote.String(), "error", err)
	}
}

// reject counts a rejection and logs it, at most once per logEvery for a peer and reason.
func (g *Gate) reject(ctx context.Context, listener, reason, remote string, args ...any) {
	peer := netaddr.PeerName(remote)
	g.mu.Lock()
	g.last = Rejection{g.last.Count + 1, time.Now(), listener, peer, reason}
	g.mu.Unlock()
	if g.options.Rejected != nil {
		g.options.Rejected(listener, reason)
	}
	if _, ok := g.logged.Allow(listener + " " + reason + " " + peer); ok {
		g.options.Log.WarnContext(ctx, "caller rejected: it gets no decisions, and a gateway may then allow everything or respond "+
			"with errors", append([]any{"listener", listener, "peer", peer, "reason", reason}, args...)...)
	}
}
