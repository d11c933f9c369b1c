package httplimit

import (
	"net/http"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/limitfields"
)

// refuse answers a request that may not pass.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, d *headgate.Decision) {
	var again *int64
	if d.RetryAfter != headgate.Never {
		seconds := limitfields.RetryAfter(d.RetryAfter, m.random)
		again = &seconds
		w.Header()[limitfields.FieldRetryAfter] = []string{strconv.FormatInt(seconds, 10)}
	}
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
