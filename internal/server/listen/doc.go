// Package listen provides listeners with a limit on connections, certificates that are reloaded when their files change, and
// HTTP and gRPC servers that bound everything a client can send or leave unfinished.
//
// It has no knowledge of requests and responses: handlers and services are passed in or registered by other packages.
package listen
