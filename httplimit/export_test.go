package httplimit

import "net/http"

// NewWithRandom is New with chance that is known in advance.
func NewWithRandom(checker Checker, o Options, random func(n int64) int64) func(http.Handler) http.Handler {
	m := newMiddleware(checker, o)
	m.random = random
	return func(next http.Handler) http.Handler { return &handler{m, next} }
}
