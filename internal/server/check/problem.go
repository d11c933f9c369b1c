package check

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/internal/limitfields"
)

// Problem is what is wrong with a request over HTTP, as RFC 9457 has it. The type about:blank means that the status says which
// kind it is.
type Problem struct { //nolint:errname // RFC 9457 calls it so
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// Problemf returns a problem with a detail.
func Problemf(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

func (p *Problem) Error() string { return p.Detail }

// Write answers a request with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	body, _ := json.Marshal(p) // strings and numbers can always be written
	Answer(w, p.Status, limitfields.ProblemType, append(body, '\n'))
}

// Answer answers a request with a body of a media type, which nobody is to keep.
func Answer(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that is gone is not told
}
