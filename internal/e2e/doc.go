// Package e2e runs the gateway examples unchanged, with real gateways, Redis and `headgate serve` as processes. It knows what clients
// and applications may expect, but nothing of Headgate's implementation. It contains only tests.
package e2e
