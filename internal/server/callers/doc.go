// Package callers authorizes callers of the data plane by a token, by the name in their certificate, or by both, as
// configured. A rejected gateway may allow everything or respond to its clients with errors, so that each rejection is
// logged, counted and part of the health report.
package callers
