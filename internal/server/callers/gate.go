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

// Header carries a caller's token over HTTP, and over gRPC as metadata of that name. It is not Authorization, which gateways pass on
// from clients and which says who the client is.
const Header = "X-Headgate-Token"

// logEvery is how often the log has a line about the same peer.
const logEvery = 10 * time.Minute

// Why a caller is rejected, for metrics and logs.
const (
	noToken       = "no_token"
	unknownToken  = "unknown_token"
	unknownName   = "unknown_name"
	noCertificate = "no_certificate"
)

// Reasons returns all reasons why a caller may be rejected.
func Reasons() []string { return []string{noToken, unknownToken, unknownName, noCertificate} }

// details are for the caller who is rejected. They name what to send, and nothing that a guesser could use.
var details = map[string]string{
	noToken: "the caller sent no token: send " + Header + "; headgate token create NAME --role caller makes one, and its line for " +
		"the file in listen.tokens_file",
	unknownToken: "the caller's token is not known as one of the role caller: send one whose line is in the file in listen.tokens_file",
	unknownName:  "the caller's certificate has none of the names in listen.tls.client_names: take another, or add its name",
}

// Options of a Gate. Without Token and Names it lets everybody in.
type Options struct {
	// Token reports whether a token is known; nil if callers need none.
	Token func(token string) bool
	// Names are DNS names and URIs of which a caller's certificate must have one; none if every certificate will do.
	Names []string
	// Rejected is called for each caller who is rejected.
	Rejected func(listener, reason string)
	Log      *slog.Logger
}

// Gate lets callers in. It is safe for concurrent use.
type Gate struct {
	options Options
	logged  ratelog.Limiter // by listener, peer and reason

	mu   sync.Mutex
	last Rejection
}

// Rejection is the last of those who were rejected, and how many there were since the start.
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

// open reports whether everybody is let in.
func (g *Gate) open() bool { return g.options.Token == nil && len(g.options.Names) == 0 }

// judge returns why a caller is rejected, or "".
func (g *Gate) judge(tokens []string, certificate *x509.Certificate) (reason string) {
	if g.options.Token != nil {
		switch {
		case len(tokens) == 0 || len(tokens) == 1 && tokens[0] == "":
			return noToken
		case len(tokens) > 1 || !g.options.Token(tokens[0]): // of several, one may be a client's
			return unknownToken
		}
	}
	if len(g.options.Names) > 0 && !g.named(certificate) {
		return unknownName
	}
	return ""
}

// named reports whether a certificate has one of the names. The common name of its subject is none: authorities do not vouch for it.
func (g *Gate) named(c *x509.Certificate) bool {
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

// Handshake returns what to call for a TLS handshake that failed because of the caller's certificate.
func (g *Gate) Handshake(listener string) func(remote net.Addr, err error) {
	return func(remote net.Addr, err error) {
		g.reject(context.Background(), listener, noCertificate, remote.String(), "error", err)
	}
}

// reject counts a rejection and logs it, unless the peer was logged a while ago.
func (g *Gate) reject(ctx context.Context, listener, why, remote string, args ...any) {
	peer := netaddr.PeerName(remote)
	g.mu.Lock()
	g.last = Rejection{g.last.Count + 1, time.Now(), listener, peer, why}
	g.mu.Unlock()
	if g.options.Rejected != nil {
		g.options.Rejected(listener, why)
	}
	if _, ok := g.logged.Allow(listener + " " + why + " " + peer); ok {
		g.options.Log.WarnContext(ctx, "a caller is rejected and gets no decisions: if it is a gateway, it may let everything pass or "+
			"show its clients an error", append([]any{"listener", listener, "peer", peer, "reason", why}, args...)...)
	}
}
