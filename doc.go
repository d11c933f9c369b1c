// Package headgate decides whether a request may pass now.
//
// A [Limiter] finds the rules that match a request, charges all their limits in a [Store] or none, and says in a
// [Decision] which of them denies and until when. A [Rule] says which requests it is for, who is counted, and how much;
// package ruledoc reads rules from files, and package identity makes the attributes of a request.
//
// The package knows limits, rules, charges and what they do to a counter; it does no I/O. [Limit.Take] is the
// specification of counting: a pure function from a counter's state, a charge and the time to the next state and a result.
// [Decide] is the same for all charges of one request, which are taken together or not at all. A [Store] keeps the states:
// memstore in this process, redisstore in Redis; storetest holds every store to this package, field by field.
//
// For one limit on one thing, [Take] is enough:
//
//	res, err := headgate.Take(ctx, store, headgate.PerMinute(10), "login", userID)
//	if err == nil && !res.Allowed {
//		// ask again in res.RetryAfter
//	}
package headgate
