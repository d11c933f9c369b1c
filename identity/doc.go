// Package identity says who is calling: it turns a request of net/http, or the metadata of a gRPC call, into
// headgate.Attributes.
//
// It knows what a client can write into a request and what it cannot: which peers are proxies, what a path means to a
// router, which claims are signed. It does not know rules, limits or stores, and it denies nobody: what cannot be
// believed is not an attribute.
//
// What is ambiguous is not an attribute either. If a header that says who is calling has several lines that differ, one
// backend takes the first and another the last, so no choice made here would be right.
package identity
