// Package httplimit puts limits in front of any net/http handler.
//
//	http.ListenAndServe(":8080", httplimit.New(limiter, httplimit.Options{})(mux))
//
// It knows how a decision looks to an HTTP client: which headers it gets, what a denial says, and how long a request
// is held. It does not know how to decide, which it leaves to its Checker, nor who is calling, which it leaves to
// package identity.
//
// # Headers
//
// A response to a request to which an exposed rule applied has
//
//	RateLimit-Policy: "search-by-key";q=1000;w=60
//	RateLimit: "search-by-key";r=187;t=1
//	X-RateLimit-Limit: 200
//	X-RateLimit-Remaining: 187
//	X-RateLimit-Reset: 1794744001
//
// The first two are structured fields of draft-ietf-httpapi-ratelimit-headers-11, and list every exposed limit. Options.DraftVersion
// chooses another version, with other names for r and t. A policy is named after its rule, and after a #
// its limit, if the rule has limits with names: "exports#month". q and w are the rate: q units in w seconds. The w of
// a calendar's month is the length of the present month; a window that is not whole seconds has none. r is what is
// left. t is, in seconds rounded up, how long until the window ends or the bucket is full again; of a limit that
// denies it is how long until the request would fit, and missing if it never can.
//
// The X-RateLimit headers have room for one limit: the denying one with the longest wait, else the one of which the
// smallest part is left. Limit is what Remaining counts down from, which for a bucket is its burst, and Reset is when
// the present window ends, or when the bucket will be full again, in Unix seconds of the store's clock. What a sliding
// window was charged counts beyond its end: Retry-After may be later than Reset.
//
// A denial always shows the limit that denies: nothing is left of it, also where a cheaper request would pass. If its rule is
// not exposed its policy is "(hidden)", once, for the one with the longest wait.
//
// A limit that the store did not decide has a policy and nothing else: what is left is not known. If it denies the request,
// or was not asked because an attribute is missing, it has nothing left and no time at which that changes.
//
// The headers are set before the handler runs, in the place of any that were there, and the handler may change them.
// The ResponseWriter is handed on as it is, so flushing, hijacking, trailers and http.ResponseController work as
// without the middleware.
//
// # Denials
//
// A denial is a 429 with Retry-After and a problem document (RFC 9457):
//
//	{"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "Quota exceeded", "status": 429,
//	 "violated-policies": ["login-by-ip"], "error": "rate_limit_exceeded",
//	 "message": "rate limit exceeded: login-by-ip allows 10/minute; retry in 7 seconds", "rule": "login-by-ip", "retry_after": 7}
//
// Retry-After is never earlier than the truth. It is later by up to a tenth, at least by 0 or 1 seconds and at most
// by 5 minutes, so that clients who were denied together do not come back together. A request that can never pass
// gets none, and a retry_after of null.
//
// A rule that is not exposed stays unnamed: rule and violated-policies then have "(hidden)".
//
// A request that is denied only because the store does not answer, and a rule says deny in that case, gets a 503 of
// type temporary-reduced-capacity with the error rate_limit_unavailable.
package httplimit
