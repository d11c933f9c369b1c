// Package grpclimit puts a limiter in front of a gRPC server: interceptors for unary calls and for streams.
//
// It knows what gRPC asks of a server that denies: a status with details, and how its clients retry. It does not know
// rules or counters, which it leaves to a Checker, nor who is calling, which is for package identity to say.
//
// # What rules see
//
// The path of a call is its full method, /package.Service/Method, and its method is POST. A rule for a whole service
// has the path /package.Service/*. Metadata are headers: header.x-rows.
//
// # What is checked when
//
// A call for which the client sends one message, unary or with a stream of answers, is checked once, when its message
// is there. A stream from the client is checked when it starts; with Options.PerMessage each of its messages is checked
// as well, as a request of its own with the attribute descriptor.message.
//
// # What a client sees
//
// A call that is denied ends with codes.ResourceExhausted and these details:
//
//   - errdetails.RetryInfo: when the call can pass, never too early, with up to 10 % added by chance so that clients
//     do not come back together (up to 100 ms to a wait shorter than a second, never more than 5 minutes). It is left
//     out if the call can never pass.
//   - errdetails.QuotaFailure: a violation for each limit that denies, up to 16. Its subject is the policy: the
//     rule's ID, and after a # the limit's name if it has one, as in "exports#month". Its description says why.
//   - errdetails.ErrorInfo: the reason RATE_LIMIT_EXCEEDED in the domain headgate; its metadata have the rule that
//     keeps the call out the longest.
//
// Limits that the rule does not expose deny without being named. A call that is denied only because the store did
// not answer, where the rule says deny, ends with codes.Unavailable and the reason RATE_LIMIT_UNAVAILABLE.
//
// The trailer grpc-retry-pushback-ms carries the same wait to clients of gRPC that have a retry policy for the status:
// they retry by themselves when the call can pass. Waits longer than a minute are not for a client to sit out; it is
// told not to retry.
package grpclimit
