package adminapi

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/netaddr"
	"github.com/headgate/headgate/internal/ratelog"
	"github.com/headgate/headgate/memstore"
)

const (
	// guessesPerSecond is how many wrong tokens one address may send. Tokens made by headgate cannot be guessed at any rate,
	// but tokens made up by people might be.
	guessesPerSecond = 10
	// callsPerSecond is how many calls one caller may make per second, and callBurst how many at once.
	callsPerSecond = 50
	callBurst      = 200
	// maxPeers limits the memory for addresses.
	maxPeers = 10_000
	// lookupTimeout limits the lookup of a token by an authority.
	lookupTimeout = time.Second
)

// Guard authenticates callers by their token, and throttles clients that guess tokens.
type Guard struct {
	tokens Authority
	store  *memstore.Store
	log    *slog.Logger
	logged ratelog.Limiter // by message and peer
	// locks make concurrent guesses count one by one, and limit the number of concurrent lookups. There are several, so that a
	// slow lookup for one address does not block all others.
	locks [64]sync.Mutex
	seed  maphash.Seed
	// admitted tokens do not wait for lookups of guessed tokens.
	admitted admitted
}

// NewGuard returns a guard. It logs wrong tokens, at most every 10 seconds for each address.
func NewGuard(tokens Authority, log *slog.Logger) *Guard {
	store := memstore.New(memstore.Options{MaxEntries: maxPeers})
	return &Guard{tokens: tokens, store: store, log: log, seed: maphash.MakeSeed()}
}

// MayRefund returns nil if a caller may refund units without a receipt, by the Authorization header that the peer sent. Editors
// may, except those bound to a tenant, since the counters of a request may be shared with other tenants.
func (g *Guard) MayRefund(ctx context.Context, authorization, peer string) error {
	by, rejection := g.admit(ctx, authorization, peer)
	switch {
	case rejection != nil:
		return errors.New("a refund requires a token with the role editor, or a reservation: " + rejection.Detail)
	case !by.Role.atLeast(Editor):
		return fmt.Errorf("a refund requires the role editor, and %s has the role %s", by.Name, by.Role)
	case by.Tenant != "":
		return fmt.Errorf("a refund may change counters of all tenants, and %s is bound to tenant %s", by.Name, by.Tenant)
	}
	g.log.DebugContext(ctx, "units refunded", "caller", by.Name)
	return nil
}

// admit returns the caller whose token a request has, or why the request is rejected. Wrong tokens are counted by address. Guessable
// tokens from an address that has sent too many are not looked up, so that guessing does not continue. Tokens that cannot be guessed
// are always looked up, so that a client that guesses does not lock out others behind the same proxy.
func (g *Guard) admit(ctx context.Context, authorization, remote string) (by Caller, rejection *problem) {
	scheme, token, _ := strings.Cut(authorization, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return by, unauthorized("token required: send Authorization: Bearer TOKEN; headgate token create NAME makes a token")
	}
	peer := netaddr.PeerName(remote)
	if !g.admitted.has(token) {
		lock := &g.locks[maphash.String(g.seed, peer)%uint64(len(g.locks))]
		lock.Lock()
		defer lock.Unlock()
		if wait := g.guess(ctx, peer, 0); wait > 0 && !unguessable(token) {
			return by, tooMany("too many wrong tokens from "+peer, wait)
		}
	}
	lookupCtx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	by, err := g.tokens.Caller(lookupCtx, token)
	var invalid tokenError
	switch {
	case err == nil:
		g.admitted.add(token)
		return by, nil
	case !errors.As(err, &invalid):
		g.warn(ctx, "token lookup failed; call rejected", peer, "error", err)
		return Caller{}, newProblem(http.StatusServiceUnavailable, "token lookup failed: try again, or use a token of "+
			"the file that admin.tokens_file names")
	}
	g.admitted.remove(token)
	wait := g.guess(ctx, peer, 1)
	g.warn(ctx, "wrong token; call rejected", peer)
	if wait > 0 {
		return Caller{}, tooMany("too many wrong tokens from "+peer, wait)
	}
	return Caller{}, unauthorized(invalid.Error())
}

// throttle returns a problem if a caller makes too many calls, since all callers share the database.
func (g *Guard) throttle(ctx context.Context, by Caller) *problem {
	limit := headgate.PerSecond(callsPerSecond)
	limit.Burst = callBurst
	calls, _ := headgate.Take(ctx, g.store, limit, "calls", by.Name, string(by.Role), by.Tenant) // the memory store does not fail
	if calls.Allowed {
		return nil
	}
	return tooMany("too many requests by "+by.Name, calls.RetryAfter)
}

// tooMany returns a 429 with a Retry-After of whole seconds, rounded up.
func tooMany(what string, wait time.Duration) *problem {
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	p := newProblem(http.StatusTooManyRequests, what+": try again in "+seconds+" s")
	p.header = http.Header{"Retry-After": {seconds}}
	return p
}

// warn logs a message about a peer, at most every 10 seconds.
func (g *Guard) warn(ctx context.Context, message, peer string, args ...any) {
	if _, ok := g.logged.Allow(message + " " + peer); ok {
		g.log.WarnContext(ctx, message, append(args, "peer", peer)...) //nolint:sloglint // callers pass a constant
	}
}

// guess charges a wrong token, or nothing if cost is 0, and returns how long the peer must wait.
func (g *Guard) guess(ctx context.Context, peer string, cost int64) time.Duration {
	limit := headgate.PerSecond(guessesPerSecond)
	charges := []headgate.Charge{{
		Subject: headgate.SubjectOf(peer), Counter: headgate.CounterOf("guess", "", limit.Algorithm),
		Limit: limit, Cost: cost,
	}}
	results := make([]headgate.Result, 1)
	_ = g.store.Take(ctx, charges, results) // the memory store does not fail
	return results[0].RetryAfter
}

// unauthorized returns a 401 that requests a bearer token.
func unauthorized(detail string) *problem {
	p := newProblem(http.StatusUnauthorized, detail)
	p.header = http.Header{"Www-Authenticate": {"Bearer"}}
	return p
}
