package callers

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"

	"github.com/headgate/headgate/internal/server/check"
)

// HTTP returns a handler that passes authorized requests to next, without the token: it is not an attribute of a client.
func (g *Gate) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens := r.Header[Header]
		delete(r.Header, Header)
		if reason := g.authorize(tokens, certificateOf(r.TLS)); reason != "" {
			g.reject(r.Context(), "http", reason, r.RemoteAddr)
			status := http.StatusForbidden
			if reason != unknownName {
				status = http.StatusUnauthorized
				w.Header().Set("Www-Authenticate", Header)
			}
			check.Problemf(status, "%s", details[reason]).Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// certificateOf returns the certificate of the caller, or nil.
func certificateOf(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.PeerCertificates) == 0 {
		return nil
	}
	return state.PeerCertificates[0]
}
