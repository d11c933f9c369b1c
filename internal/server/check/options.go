package check

import (
	"log/slog"

	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/limitfields"
)

// Options are what every transport of the check API is told.
type Options struct {
	// Identity says whom a request is about and which proxies are trusted, and normalises the attributes that callers send; nil means
	// one that trusts nobody.
	Identity *identity.Resolver
	// Headers says which headers tell clients of their limits.
	Headers limitfields.Choice
	// MayRefund says which callers may give units back; nil lets nobody.
	MayRefund MayRefund
	// Log is told when the engine fails, at most every 10 seconds, and of proxies that leave out what they should say; nil means
	// slog.Default().
	Log *slog.Logger
}

// Complete returns the options with what nil stands for.
func (o Options) Complete() Options {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Identity == nil {
		// Nothing is asked for that could be wrong, so there is no error; a test holds that.
		o.Identity, _ = identity.New(identity.Options{Log: o.Log})
	}
	return o
}
