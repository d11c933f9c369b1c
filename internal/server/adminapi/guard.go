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
	// guessesPerSecond is how many wrong tokens one address may send. Tokens that headgate makes cannot be guessed at any
	// rate; those that people make up might be.
	guessesPerSecond = 10
	// callsPerSecond is how often one caller may ask, and callsAtOnce how often all at once.
	callsPerSecond = 50
	callsAtOnce    = 200
	// mostPeers bounds what addresses take of memory.
	mostPeers = 10_000
	// lookupTimeout is how long an authority may take to say whose a token is.
	lookupTimeout = time.Second
)

// Guard lets in who has a token, and slows down who guesses.
type Guard struct {
	tokens Authority
	store  *memstore.Store
	log    *slog.Logger
	logged ratelog.Limiter // by message and peer
	// locks make guesses that come at once count one by one, and bound how many are looked up at a time. There are several, so
	// that an authority that is slow to tell about one address does not hold up all others.
	locks [64]sync.Mutex
	seed  maphash.Seed
	// admitted tokens need not wait behind those who guess.
	admitted admitted
}

// NewGuard makes a guard. log is told of wrong tokens, at most every 10 seconds for each address.
func NewGuard(tokens Authority, log *slog.Logger) *Guard {
	store := memstore.New(memstore.Options{MaxEntries: mostPeers})
	return &Guard{tokens: tokens, store: store, log: log, seed: maphash.MakeSeed()}
}

// MayRefund is nil for those who may give units back that they have no receipt of: editors, by the Authorization that a
// peer sent. Those of a tenant may not: the counters of a request may be of others, too.
func (g *Guard) MayRefund(ctx context.Context, authorization, peer string) error {
	by, denial := g.admit(ctx, authorization, peer)
	switch {
	case denial != nil:
		return errors.New("a refund takes a token with the role editor, or a reservation: " + denial.Detail)
	case !by.Role.atLeast(Editor):
		return fmt.Errorf("a refund takes the role editor, and %s has the role %s", by.Name, by.Role)
	case by.Tenant != "":
		return fmt.Errorf("a refund may be on counters of all tenants, and %s is of tenant %s only", by.Name, by.Tenant)
	}
	g.log.DebugContext(ctx, "units are given back", "caller", by.Name)
	return nil
}

// admit returns whose token a request has, or why it is rejected. Wrong tokens are counted by address, and from one that sent
// too many a token that somebody may have made up is not looked at: whoever guesses would go on. Tokens that cannot be guessed
// are always looked up, so that those who guess lock nobody out behind the same proxy.
func (g *Guard) admit(ctx context.Context, authorization, remote string) (by Caller, denial *problem) {
	scheme, token, _ := strings.Cut(authorization, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return by, unauthorized("the request has no token: send Authorization: Bearer TOKEN; headgate token create NAME makes one")
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
	asking, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	by, err := g.tokens.Caller(asking, token)
	var denied deniedError
	switch {
	case err == nil:
		g.admitted.add(token)
		return by, nil
	case !errors.As(err, &denied):
		g.complain(ctx, "tokens cannot be looked up: nobody knows whose one is", peer, "error", err)
		return Caller{}, newProblem(http.StatusServiceUnavailable, "the token cannot be looked up now: try again, or use one of "+
			"the file that admin.tokens_file names")
	}
	g.admitted.remove(token)
	wait := g.guess(ctx, peer, 1)
	g.complain(ctx, "a wrong token was sent", peer)
	if wait > 0 {
		return Caller{}, tooMany("too many wrong tokens from "+peer, wait)
	}
	return Caller{}, unauthorized(denied.Error())
}

// pace is nil unless a caller asks too often: the database is for all of them.
func (g *Guard) pace(ctx context.Context, by Caller) *problem {
	limit := headgate.PerSecond(callsPerSecond)
	limit.Burst = callsAtOnce
	calls, _ := headgate.Take(ctx, g.store, limit, "calls", by.Name, string(by.Role), by.Tenant) // memory always answers
	if calls.Allowed {
		return nil
	}
	return tooMany("too many requests by "+by.Name, calls.RetryAfter)
}

func tooMany(what string, wait time.Duration) *problem {
	seconds := strconv.Itoa(int(math.Ceil(wait.Seconds())))
	p := newProblem(http.StatusTooManyRequests, what+": try again in "+seconds+" s")
	p.header = http.Header{"Retry-After": {seconds}}
	return p
}

// complain tells the log, unless it did a moment ago.
func (g *Guard) complain(ctx context.Context, of, peer string, args ...any) {
	if _, ok := g.logged.Allow(of + " " + peer); ok {
		g.log.WarnContext(ctx, of, append(args, "peer", peer)...)
	}
}

// guess charges a wrong token, or nothing, and says how long to wait.
func (g *Guard) guess(ctx context.Context, peer string, cost int64) time.Duration {
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
