// Package ratelimit holds Headgate to envoyproxy/ratelimit, the real one, on a real Redis: by the same configs both say
// the same to the same requests, but for the table in docs/migrate-from-envoyproxy-ratelimit.md. It has only tests.
package ratelimit
