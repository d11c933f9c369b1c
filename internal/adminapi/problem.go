package adminapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
)

// problem is an answer that is none, as RFC 9457 has it. Detail says what to do.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	header http.Header
}

func newProblem(status int, detail string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: detail}
}

func (p *problem) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.header)
	writeJSON(w, p.Status, "application/problem+json", p)
}

func writeJSON(w http.ResponseWriter, status int, contentType string, value any) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // conditions with && are for people too
	_ = encoder.Encode(value)    // texts and numbers can always be written
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // whoever is gone is not told
}
