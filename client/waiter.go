package client

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/protofields"
)

// maxRequest is far more than servers accept, but small enough that a message with such a request does not end the stream, which
// other callers share.
const maxRequest = 2 << 20

// waiter is a pending check. It is reused.
type waiter struct {
	request []byte // encoded
	begins  bool
	started time.Time
	timer   *time.Timer
	done    chan struct{} // buffered: one result

	// These belong to the link while the check is pending.
	id    uint64 // 0 until the check is sent
	index int    // in the queue until the check is sent

	// The result, valid after done.
	err      error
	response []byte
	code     codes.Code
	message  string
	names    names
}

func newWaiter() *waiter {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &waiter{timer: timer, done: make(chan struct{}, 1), names: names{}}
}

// encode encodes the request into w.
func (w *waiter) encode(req *headgate.Request, traceparent string, begins bool) error {
	w.begins = begins
	w.request = protofields.AppendBool(appendRequest(w.request[:0], req, traceparent), 6<<3, begins)
	if len(w.request) > maxRequest {
		return fmt.Errorf("client: request of %d bytes: must be at most %d: send fewer or shorter attributes",
			len(w.request), maxRequest)
	}
	return nil
}

// start starts the timeout.
func (w *waiter) start(timeout time.Duration) {
	w.started = time.Now()
	w.timer.Reset(timeout)
}

// complete sets the result from a reply.
func (w *waiter) complete(r *reply) {
	w.response = append(w.response[:0], r.response...)
	w.err, w.code, w.message = nil, r.code, r.message
	w.done <- struct{}{}
}

// fail sets an error as the result.
func (w *waiter) fail(err error) {
	w.err = err
	w.done <- struct{}{}
}
