package check

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/internal/limitfields"
)

// Problem is an RFC 9457 problem: the error of an HTTP request. The type about:blank means that its kind is given by the status.
type Problem struct { //nolint:errname // the term of RFC 9457
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

// Write writes the problem as the response.
func (p *Problem) Write(w http.ResponseWriter) {
	body, _ := json.Marshal(p) // strings and numbers can always be encoded
	Respond(w, p.Status, limitfields.ProblemType, append(body, '\n'))
}

// Respond writes a response with a body of a media type, which must not be cached.
func Respond(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller may have disconnected
}
