package headgate

import (
	"context"
	"fmt"
)

// Store keeps counters and decides charges on them, by its own clock.
type Store interface {
	// Take decides all charges or none. results[i] belongs to charges[i] and says what became of it, also when the server
	// that holds it did not answer; the error is then not nil. The caller owns both slices, which have the same length.
	// There may be any number of charges; see Limit.Weight.
	//
	// A limiter's ctx carries the caller's values and never ends: a store has a deadline of its own.
	Take(ctx context.Context, charges []Charge, results []Result) error
	// Shard returns the number of the shard of the store that holds a subject. Shards fail independently.
	Shard(Subject) int
}

// Signer is a Store that has keys for the tokens of reservations, the same on all nodes that share its counters. With a store
// that is none, reservations need Options.Secret.
type Signer interface {
	// Namespace tells the counters apart that share a server, so that a token is good for its own alone.
	Namespace() string
	// SigningKeys returns the key to sign with, and after it those that tokens may still be signed with. None is empty. The error
	// wraps ErrUnavailable if the store does not answer.
	SigningKeys(ctx context.Context) ([][]byte, error)
}

// Take charges one unit of one limit, without any rules: to guard a database pool, a mailer, a model. name says what is
// limited and key who is counted; both may be anything. It charges also if ctx has ended; see Limiter.Check.
func Take(ctx context.Context, store Store, limit Limit, name string, key ...string) (Result, error) {
	if err := limit.Validate(); err != nil {
		return Result{}, fmt.Errorf("limit %q: %w", name, err)
	}
	charges := [1]Charge{{
		Subject: SubjectOf(key...),
		Counter: CounterOf(name, "", limit.Algorithm),
		Limit:   limit,
		Cost:    1,
	}}
	var results [1]Result
	err := take(ctx, store, charges[:], results[:])
	return results[0], err
}

// take charges a store whether or not the caller's context has ended: a client that resets its request, or gives it a deadline
// of nothing, would else be free. How long to wait is for the store to know.
func take(ctx context.Context, store Store, charges []Charge, results []Result) error {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return store.Take(ctx, charges, results)
}
