package callers

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
)

// HTTP returns a handler that asks next for those who are let in. It removes the token from the request: it is no attribute of a
// client.
func (g *Gate) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens := r.Header[Header]
		delete(r.Header, Header)
		if why := g.judge(tokens, certificateOf(r.TLS)); why != "" {
			g.reject(r.Context(), "http", why, r.RemoteAddr)
			writeProblem(w, why)
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

func writeProblem(w http.ResponseWriter, why string) {
	status := http.StatusUnauthorized
	if why == unknownName {
		status = http.StatusForbidden
	} else {
		w.Header().Set("Www-Authenticate", Header)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // a caller that is gone needs no answer
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": details[why],
	})
}
