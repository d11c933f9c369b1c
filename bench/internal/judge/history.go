// Package judge decides from a recorded history whether a rate limiter kept its promises. It knows limits, requests and the
// correct decisions. It knows nothing of Headgate and shares no code with it, so that an error in the project's arithmetic
// cannot hide itself. A test ensures that it imports only the standard library.
package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Format is the version of the history format.
const Format = 1

// Header is the first line of a history: the scenario, and the checks to judge.
type Header struct {
	Format   int    `json:"format"`
	Scenario string `json:"scenario"`
	Seed     uint64 `json:"seed"`
	// Nodes is how many nodes shared the limits.
	Nodes  int     `json:"nodes"`
	Limits []Limit `json:"limits"`
	Checks []Check `json:"checks"`
}

// Ops of a record.
const (
	OpCheck   = "check"
	OpPeek    = "peek"
	OpRefund  = "refund"
	OpReserve = "reserve"
	OpCommit  = "commit"
	OpCancel  = "cancel"
	// OpUse is a request that a backend served, from Sent to Received on the backend's clock.
	OpUse = "use"
	// OpEvent is a fault or change of the nodes or the store; Note names it.
	OpEvent = "event"
)

// Notes of events and requests that checks look for.
const (
	NoteKill    = "kill"    // a node was killed
	NoteStop    = "stop"    // a node was stopped and resumed
	NoteStall   = "stall"   // the store was stopped and resumed
	NoteDown    = "down"    // the store was killed
	NoteUp      = "up"      // the store serves again
	NoteFlush   = "flush"   // the store lost its counters
	NoteChanged = "changed" // all nodes apply the limit with the index in Limit
	NoteReset   = "reset"   // the counter was reset
	NoteClaim   = "claim"   // the request's cost is the Remaining of the previous response
	NoteLeft    = "left"    // the caller left before the response
)

// Record is one request and its response, or an event. Times are microseconds since 1970 on the clock of the machine that all
// processes of a history share.
type Record struct {
	Op      string `json:"op"`
	Process int    `json:"process"`
	Caller  int    `json:"caller"`
	Subject string `json:"subject,omitempty"`
	// Sent is the time before the request was sent, Received the time after its response arrived.
	Sent     int64 `json:"sent_us"`
	Received int64 `json:"answered_us"`
	Cost     int64 `json:"cost"`
	Allowed  bool  `json:"allowed"`
	// Path is the path of the decision, from the response.
	Path string `json:"path,omitempty"`
	// Store is the store's time in the response; 0 if there is none.
	Store int64 `json:"store_us,omitempty"`
	// Decided is when the node decided, for OpUse.
	Decided int64 `json:"decided_us,omitempty"`
	// RetryAfter is -1 for never.
	RetryAfter int64 `json:"retry_after_us"`
	Remaining  int64 `json:"remaining"`
	// Limit is the index of the limit that denied, or of the only limit. Limits are all that applied, if several did.
	Limit  int   `json:"limit"`
	Limits []int `json:"limits,omitempty"`
	// Header is the Retry-After header of a response over HTTP, in seconds.
	Header int64 `json:"retry_after_header_s,omitempty"`
	// Token identifies the reservation.
	Token string `json:"token,omitempty"`
	Note  string `json:"note,omitempty"`
	// Error is why there was no response.
	Error string `json:"error,omitempty"`
}

// Span returns the earliest and the latest time at which the request was decided. The store's own decisions have an exact time;
// all others were made between request and response.
func (r *Record) Span() (from, to int64) {
	if r.exact() {
		return r.Store, r.Store
	}
	return r.Sent, r.Received
}

// exact reports whether the store decided, at a time that the response contains.
func (r *Record) exact() bool { return r.Path == "store" && r.Store > 0 }

// applied returns the indexes of the limits that the request was charged on.
func (r *Record) applied() []int {
	if len(r.Limits) > 0 {
		return r.Limits
	}
	return []int{r.Limit}
}

// Read returns the history in a file. It accepts only the current format.
func Read(path string) (h Header, records []Record, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return h, nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&h); err != nil {
		return h, nil, fmt.Errorf("%s: header: %w", path, err)
	}
	if h.Format != Format {
		return h, nil, fmt.Errorf("%s: format %d: must be %d", path, h.Format, Format)
	}
	records, err = decode(decoder)
	if err != nil {
		return h, nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range records {
		for _, limit := range records[i].applied() {
			if limit < 0 || limit >= len(h.Limits) {
				return h, nil, fmt.Errorf("%s: record %d: limit %d: the header has %d", path, i, limit, len(h.Limits))
			}
		}
	}
	return h, records, nil
}

// ReadRecords returns the records of a file without a header. It drops a truncated last line, left by a killed process.
func ReadRecords(path string) ([]Record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	records, err := decode(json.NewDecoder(bytes.NewReader(text)))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return records, err
}

func decode(decoder *json.Decoder) (records []Record, err error) {
	for {
		var r Record
		switch err := decoder.Decode(&r); {
		case errors.Is(err, io.EOF):
			return records, nil
		case err != nil:
			return records, fmt.Errorf("record %d: %w", len(records), err)
		}
		records = append(records, r)
	}
}

// Write writes a history with its records in the order of Sent.
func Write(path string, h Header, records []Record) error {
	slices.SortStableFunc(records, func(a, b Record) int { return int(a.Sent - b.Sent) })
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	h.Format = Format
	if err := encoder.Encode(h); err != nil {
		return err
	}
	for i := range records {
		if err := encoder.Encode(&records[i]); err != nil {
			return err
		}
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}
