// Package grpclimit is rate limiting for gRPC servers: interceptors for unary calls and for streams.
//
// It knows how a gRPC server reports a denial: the status, its details, and how clients retry. It does not know rules or
// counters, which are the job of its Checker, and does not identify clients, which is the job of package identity.
//
// # Attributes
//
// The path of a call is its full method, /package.Service/Method, and its method is POST. A rule for a whole service has the path
// /package.Service/*. Metadata are header attributes: header.x-rows.
//
// # When a call is checked
//
// A unary or server-streaming call is checked once, when the client's message has arrived. A client stream is checked when it
// starts. With Options.PerMessage, each of its messages is also checked, as a separate request with the attribute
// descriptor.message. Package streamlimit does this.
//
// # Concurrency limits
//
// A call has units of concurrency limits in use until its handler has returned, a stream for its whole life. Messages of a stream
// acquire none. The RetryInfo of a denial is an estimate then.
//
// # Denials
//
// A denied call ends with codes.ResourceExhausted and these details:
//
//   - errdetails.RetryInfo: the time until the call can be allowed. It is never too short. Jitter of up to 10 % is added so that
//     clients do not retry together (up to 100 ms for waits shorter than a second, at most 5 minutes). RetryInfo is omitted if
//     the call can never be allowed.
//   - errdetails.QuotaFailure: one violation for each limit that denies the call, at most 16. The subject is the policy: the
//     rule's ID, followed by # and the limit's name if it has one, as in "exports#month". The description is the reason.
//   - errdetails.ErrorInfo: the reason RATE_LIMIT_EXCEEDED in the domain headgate. Its metadata name the rule with the
//     longest wait.
//
// Limits of rules that are not exposed are not named. A call that is denied only because the store is unavailable and the rule's
// on_store_failure is deny ends with codes.Unavailable and the reason RATE_LIMIT_UNAVAILABLE.
//
// The trailer grpc-retry-pushback-ms carries the same wait for gRPC clients that have a retry policy for the status: they retry
// automatically when the call can be allowed. For waits longer than a minute its value is -1, which means: do not retry.
package grpclimit
