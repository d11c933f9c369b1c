package headgate

import (
	"context"
	"fmt"
)

// Store keeps counters and decides charges on them, by its own clock.
type Store interface {
	// Take grants all charges or none. It sets results[i] to the result of charges[i]. If the server that holds a counter is
	// unavailable, it sets Result.Err of the charges on that counter and returns an error. The caller owns both slices, which
	// must have the same length. There may be any number of charges; see Limit.Weight.
	//
	// A limiter's ctx carries the caller's values and is never canceled: a store needs its own deadline.
	Take(ctx context.Context, charges []Charge, results []Result) error
	// Shard returns the number of the shard that holds a subject. Shards fail independently.
	Shard(Subject) int
}

// Signer is a Store that has keys for signing reservation tokens, the same keys on all nodes that share its counters. With a store
// that is not a Signer, reservations require Options.Secret.
type Signer interface {
	// Namespace returns the name that separates these counters from others on the same server. A token is valid only in the
	// namespace that it was made in.
	Namespace() string
	// SigningKeys returns the key to sign with, followed by older keys that tokens may still be signed with. No key is empty. The
	// error wraps ErrUnavailable if the store is unavailable.
	SigningKeys(ctx context.Context) ([][]byte, error)
}

// Take charges one unit of one limit without any rules, for example to guard a database pool, a mailer or a model. name identifies
// the limit and key the subject that is counted; both may be any strings. Take charges even if ctx is done; see Limiter.Check.
func Take(ctx context.Context, store Store, limit Limit, name string, key ...string) (Result, error) {
	if err := limit.Validate(); err != nil {
		return Result{}, fmt.Errorf("limit %q: %w", name, err)
	}
	if limit.Algorithm == Concurrency {
		return Result{}, fmt.Errorf("limit %q: algorithm concurrency: call Store.Take, to acquire and to release", name)
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

// take charges a store even if the caller's context is done: otherwise a client could evade its limits by resetting its requests or
// by sending an expired deadline. The store has its own deadline.
func take(ctx context.Context, store Store, charges []Charge, results []Result) error {
	if ctx.Done() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	return store.Take(ctx, charges, results)
}
