package check

import (
	"log/slog"

	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/limitfields"
)

// Options configures a transport of the check API.
type Options struct {
	// Identity identifies clients, defines the trusted proxies, and normalizes the attributes that callers send. nil means a
	// resolver that trusts no proxy.
	Identity *identity.Resolver
	// Headers selects the headers that show clients their limits.
	Headers limitfields.Choice
	// MayRefund authorizes callers to refund units. nil allows none.
	MayRefund MayRefund
	// Slots keeps the slots of requests in flight. nil means a new table; transports of the same engine share one.
	Slots *Slots
	// Log receives failures of the engine, at most every 10 seconds, and proxies that omit required headers. nil means
	// slog.Default().
	Log *slog.Logger
}

// Complete returns the options with the defaults of nil fields.
func (o Options) Complete() Options {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Slots == nil {
		o.Slots = NewSlots()
	}
	if o.Identity == nil {
		// Empty options are always valid, so that there is no error; a test checks that.
		o.Identity, _ = identity.New(identity.Options{Log: o.Log})
	}
	return o
}
