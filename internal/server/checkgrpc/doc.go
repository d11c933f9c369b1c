// Package checkgrpc is our check API in gRPC: what package checkv1 describes, answered by an Engine.
//
// It knows the messages, their bounds and how to answer many at once. It does not know where rules and counters are,
// nor who is calling: callers are services that are trusted to say whom they ask for.
package checkgrpc
