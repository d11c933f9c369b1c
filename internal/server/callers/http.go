package callers

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"

	"github.com/headgate/headgate/internal/server/check"
)

// HTTP returns a handler that asks next for those who are let in. It removes the token from the request: it is no attribute of a
// client.
func (g *Gate) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens := r.Header[Header]
		delete(r.Header, Header)
		if why := g.judge(tokens, certificateOf(r.TLS)); why != "" {
			g.reject(r.Context(), "http", why, r.RemoteAddr)
			status := http.StatusForbidden
			if why != unknownName {
				status = http.StatusUnauthorized
				w.Header().Set("Www-Authenticate", Header)
			}
			check.Problemf(status, "%s", details[why]).Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// certificateOf returns the certificate of the other side, or nil.
func certificateOf(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.PeerCertificates) == 0 {
		return nil
	}
	return state.PeerCertificates[0]
}
