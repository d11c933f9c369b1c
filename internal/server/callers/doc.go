// Package callers decides who may ask the data plane: whoever has a token, a certificate with the right name, or both, as the config
// wants it. A gateway that is rejected may let everything pass or show its customers an error, so that a rejection is never silent: it
// is logged, counted and part of readiness.
package callers
