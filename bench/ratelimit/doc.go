// Package ratelimit compares Headgate with a real envoyproxy/ratelimit on a real Redis: with the same configs both must return
// the same responses, except for the differences in docs/migrate-from-envoyproxy-ratelimit.md. It has only tests.
package ratelimit
