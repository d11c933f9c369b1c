// Package checkgrpc serves the check API of package checkv1 over gRPC.
//
// It defines the bounds of messages and how many requests are decided concurrently. Decisions are made by a check.Engine.
// Callers are services that are trusted to identify their clients.
package checkgrpc
