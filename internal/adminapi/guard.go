package adminapi

import (
	"context"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

const (
	// guessesPerSecond is how many wrong tokens one address may send. Tokens that headgate makes cannot be guessed at any
	// rate; those that people make up might be.
	guessesPerSecond = 10
	// mostPeers bounds what addresses take of memory.
	mostPeers = 10_000
	// complaintEvery keeps whoever guesses from filling the log.
	complaintEvery = 10 * time.Second
)

// guard lets in who has a token.
type guard struct {
	tokens *Tokens
	store  *memstore.Store
	log    *slog.Logger
	mu     sync.Mutex // so that guesses made at once count one by one
}

func newGuard(tokens *Tokens, log *slog.Logger) *guard {
	return &guard{tokens: tokens, store: memstore.New(memstore.Options{MaxEntries: mostPeers}), log: log}
}

// admit says whose token a request has, or how to refuse it. An address that sent too many wrong tokens is refused
// before its token is looked at: it would go on guessing.
func (g *guard) admit(r *http.Request) (name string, refusal *problem) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", unauthorized("the request has no token: send Authorization: Bearer TOKEN; headgate token create NAME makes one")
	}
	peer := network(r.RemoteAddr)
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait := g.guess(r.Context(), peer, 0); wait > 0 {
		seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
		p := newProblem(http.StatusTooManyRequests, "too many wrong tokens from "+peer+": try again in "+seconds+" s")
		p.header = http.Header{"Retry-After": {seconds}}
		return "", p
	}
	if name = g.tokens.nameOf(token); name != "" {
		return name, nil
	}
	g.guess(r.Context(), peer, 1)
	complaint := headgate.Per(1, complaintEvery)
	if told, err := headgate.Take(r.Context(), g.store, complaint, "wrong token", peer); err == nil && told.Allowed {
		g.log.WarnContext(r.Context(), "a wrong token was sent to the admin API", "peer", peer)
	}
	return "", unauthorized("the token is not known: its line is not in the file that admin.tokens_file names; " +
		"headgate token create NAME makes a token and its line")
}

// guess charges a wrong token, or nothing, and says how long to wait.
func (g *guard) guess(ctx context.Context, peer string, cost int64) time.Duration {
	limit := headgate.PerSecond(guessesPerSecond)
	charges := []headgate.Charge{{
		Subject: headgate.SubjectOf(peer), Counter: headgate.CounterOf("guess", "", limit.Algorithm),
		Limit: limit, Cost: cost,
	}}
	results := make([]headgate.Result, 1)
	_ = g.store.Take(ctx, charges, results) // memory always answers
	return results[0].RetryAfter
}

func unauthorized(detail string) *problem {
	p := newProblem(http.StatusUnauthorized, detail)
	p.header = http.Header{"Www-Authenticate": {"Bearer"}}
	return p
}

// network is whom guesses are counted for: an address, or the /64 that an IPv6 address is in.
func network(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if address = address.Unmap().WithZone(""); address.Is4() {
		return address.String()
	}
	prefix, _ := address.Prefix(64) // of an IPv6 address there always is one
	return prefix.String()
}
