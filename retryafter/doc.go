// Package retryafter is for callers of rate limited APIs: a transport for http.Client that waits as long as the server requests and
// retries.
//
//	client := &http.Client{Transport: retryafter.New(http.DefaultTransport, retryafter.Options{})}
//
// It handles the statuses 429 and 503. The wait is taken from the first of these headers that is present: Retry-After; RateLimit, in
// any version of its draft; X-RateLimit-Reset or RateLimit-Reset, if nothing remains. Without such a header it uses exponential
// backoff. A time of day is relative to the response's Date header, if it has one, so that a wrong clock on either side does not
// matter. A retry is never earlier than the server requested. Jitter is added, so that clients that were denied together do not retry
// together.
//
// It neither hangs nor overloads the server. The caller gets the server's denial at once if the wait is longer than
// [Options.MaxWait] or the context's deadline, if the attempts or the budget are used up, or if the body cannot be sent twice.
// Network errors are returned unchanged.
//
// # Which requests are retried
//
// A request is retried only if it has no body, or if GetBody can recreate the body, which http.NewRequest provides for the usual
// readers:
//
//   - after a 429, and after a 503 with Retry-After, with any method: these mean that the request was denied, not that it failed
//     halfway;
//   - after any other 503 only if the request is idempotent: GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and requests with an
//     Idempotency-Key or X-Idempotency-Key.
package retryafter
