package httplimit

import (
	"context"

	"github.com/headgate/headgate"
)

// logFailure logs, at most every 10 seconds, that a request was decided without the store.
func (m *middleware) logFailure(ctx context.Context, d *headgate.Decision, err error) {
	suppressed, ok := m.failures.Allow("")
	if !ok {
		return
	}
	for i := 0; err == nil && i < len(d.Limits); i++ {
		err = d.Limits[i].Err
	}
	m.log.ErrorContext(ctx, "the store did not decide; the rules say what happens while it does not",
		"error", err, "allowed", d.Allowed, "path", string(d.Path), "others_since_last", suppressed)
}
