// Package listen opens what the server listens on: listeners with a cap on connections, certificates that are read again
// when their files change, and servers of HTTP and gRPC in which nothing a client sends or leaves undone is without bound.
//
// It knows no request and no answer: handlers and services are given to it, or registered by others.
package listen
