// Package retryafter is for callers of limited APIs: a transport for http.Client that waits as the server says and asks
// again.
//
//	client := &http.Client{Transport: retryafter.New(http.DefaultTransport, retryafter.Options{})}
//
// It knows the statuses 429 and 503 and what servers write beside them: Retry-After, else RateLimit in the spelling of any
// version of its draft, else
// X-RateLimit-Reset or RateLimit-Reset if nothing remains, else nothing, and then it backs off by itself. A time of day
// is measured from the response's own Date, if it has one, so that a wrong clock on either side does not matter. It
// never asks earlier than it was told, only a random while later, so that clients which were denied together do not
// come back together.
//
// It does not hang and does not hammer. Where waiting makes no sense (the wait is longer than [Options.MaxWait] or than
// the context lasts, the attempts or the budget are used up, the body cannot be sent twice) the caller gets the denial
// as the server sent it, at once. Errors of the network are passed on as they are.
//
// # What is sent again
//
// A request without a body, or with one that GetBody can make anew, as http.NewRequest provides for the usual readers:
//
//   - after a 429, and after a 503 with Retry-After, whatever its method is: these say that the request was denied,
//     not that it failed halfway;
//   - after any other 503 only if doing it twice is harmless: GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and requests
//     with an Idempotency-Key or X-Idempotency-Key.
package retryafter
