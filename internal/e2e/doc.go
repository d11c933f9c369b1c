// Package e2e runs the examples of gateways as they are, with real gateways, Redis and `headgate serve` as processes.
// It knows what clients and applications may expect of them, and nothing of how Headgate is made. It has nothing but tests.
package e2e
