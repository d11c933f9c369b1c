package httplimit

import (
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

// refuse answers a request that may not pass, whose headers are set.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, d *headgate.Decision, again *int64) {
	if m.answer != nil {
		m.answer(w, r, *d)
		return
	}
	status, body := limitfields.Problem(d, again, m.status)
	w.Header().Set("Content-Type", limitfields.ProblemType)
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(body) // a client that is gone is not told
}
