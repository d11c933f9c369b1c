package httplimit

import "net/http"

// NewWithRandom returns New's middleware with a given source of randomness.
func NewWithRandom(checker Checker, o Options, random func(n int64) int64) func(http.Handler) http.Handler {
	m := newMiddleware(checker, o)
	m.random = random
	return func(next http.Handler) http.Handler { return &handler{m, next} }
}
