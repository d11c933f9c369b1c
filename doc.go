// Package headgate decides whether a request is allowed now.
//
// A [Limiter] finds the rules that match a request, charges all their limits in a [Store] or none of them, and returns a
// [Decision]: whether the request is allowed, which limits deny it and when to retry. A [Rule] states which requests it matches,
// what they are counted by and how many are allowed. Package ruledoc reads rules from files, and package identity derives the
// attributes of a request from HTTP.
//
// This package defines limits, rules, charges and their effect on a counter; it does no I/O. [Limit.Take] is the specification
// of counting: a pure function from a counter's state, a charge and the time to the next state and a result. [Decide] is the
// specification for all charges of one request, which are granted together or not at all. A [Store] keeps the states: package
// memstore in this process, package redisstore in Redis. Package storetest verifies that a store's results equal the
// specification's, field by field.
//
// For one limit on one key, without rules, call [Take]:
//
//	res, err := headgate.Take(ctx, store, headgate.PerMinute(10), "login", userID)
//	if err == nil && !res.Allowed {
//		// denied: retry after res.RetryAfter
//	}
package headgate
