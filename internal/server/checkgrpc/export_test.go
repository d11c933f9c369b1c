package checkgrpc

import "github.com/headgate/headgate/internal/server/check"

// NewNarrow returns a service with a smaller limit of checks in flight.
func NewNarrow(engine check.Engine, inFlight int) *Service {
	s := New(engine, Options{})
	s.connections, s.maxInFlight = newConnections(inFlight), inFlight
	return s
}
