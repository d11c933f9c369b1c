// Package identity identifies callers: it resolves an HTTP request, or the metadata of a gRPC call, to headgate.Attributes.
//
// It knows which parts of a request a client can forge and which it cannot: which peers are trusted proxies, how routers interpret
// a path, which claims are signed. It does not know rules, limits or stores, and it never denies a request: a value that cannot be
// trusted is not an attribute.
//
// An ambiguous value is not an attribute either. If an identifying header has several lines that differ, one backend uses the
// first and another the last, so either choice could be wrong.
package identity
