// Package httplimit is rate limiting middleware for any net/http handler.
//
//	http.ListenAndServe(":8080", httplimit.New(limiter, httplimit.Options{})(mux))
//
// It knows how to present a decision to an HTTP client: the headers, the response of a denial, and how long to delay a
// request. It does not decide requests, which is the job of its Checker, and does not identify clients, which is the job of
// package identity.
//
// # Headers
//
// The response to a request that matches an exposed rule has these headers:
//
//	RateLimit-Policy: "search-by-key";q=1000;w=60
//	RateLimit: "search-by-key";r=187;t=1
//	X-RateLimit-Limit: 200
//	X-RateLimit-Remaining: 187
//	X-RateLimit-Reset: 1794744001
//
// RateLimit-Policy and RateLimit are structured fields of draft-ietf-httpapi-ratelimit-headers-11 and list every exposed limit.
// Options.DraftVersion selects another version of the draft, which has other names for r and t.
//
//   - The name of a policy is the ID of its rule, followed by # and the name of the limit if the rule has named limits:
//     "exports#month".
//   - q and w are the rate: q units per w seconds. For a calendar month, w is the length of the current month. w is omitted
//     if the window is not a whole number of seconds. A concurrency limit has qu="concurrent-requests" instead of w, and neither
//     t nor X-RateLimit-Reset.
//   - r is the number of units remaining.
//   - t is the number of seconds, rounded up, until the window ends or the bucket is full again. For a limit that denies the
//     request, t is the time until the request would be allowed; it is omitted if the limit can never allow the request.
//
// The X-RateLimit headers report a single limit: the denying limit with the longest wait, or else the limit with the smallest
// fraction remaining. Limit is the maximum of Remaining, which for a bucket is its burst. Reset is the time when the current
// window ends or the bucket is full again, in Unix seconds of the store's clock. A sliding window still counts charges of the
// previous window after Reset, so Retry-After may be later than Reset.
//
// A denial always reports the limit that denies the request, with 0 remaining, even if a cheaper request would be allowed. If
// its rule is not exposed, the policy is named "(hidden)". It appears once, for the hidden limit with the longest wait.
//
// A limit that the store did not decide appears in RateLimit-Policy only, because its remaining count is unknown. If it denies the
// request, or was not evaluated because an attribute is missing, it is reported with 0 remaining and no reset.
//
// The headers are set before the handler runs and replace existing headers of the same name. The handler may change them. The
// handler receives the original ResponseWriter, so flushing, hijacking, trailers and http.ResponseController work as without the
// middleware.
//
// # Concurrency limits
//
// A request has units of concurrency limits in use until its handler has returned, even by a panic. A handler that hijacks the
// connection, or works on after it has returned, keeps them with Keep. Call Limiter.Close when the server has stopped.
//
// # Denials
//
// A denial is a 429 with Retry-After and a problem document (RFC 9457):
//
//	{"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Quota exceeded", "status": 429,
//	 "violated-policies": ["login-by-ip"], "error": "rate_limit_exceeded",
//	 "message": "rate limit exceeded: login-by-ip allows 10/minute; retry in 7 seconds", "rule": "login-by-ip", "retry_after": 7}
//
// Retry-After is never too early. Jitter of up to a tenth of the wait is added, capped at 5 minutes, and of 0 or 1 seconds for
// waits below 20 seconds, so that clients that were denied together do not retry together. The response to a request that can
// never be allowed has no Retry-After, and its retry_after is null. After a denial by a concurrency limit it is an estimate of at
// least one second, from how long requests have been in flight.
//
// A rule that is not exposed is not named: rule and violated-policies then contain "(hidden)".
//
// A request that is denied only because the store is unavailable and a rule's on_store_failure is deny gets a 503 of type
// temporary-reduced-capacity with the error rate_limit_unavailable.
package httplimit
