package client

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
)

// maxRequest is far more than servers accept, and small enough that a message with such a request does not end a stream
// that others use as well.
const maxRequest = 2 << 20

// waiter is one check and whoever waits for its answer. It is used again for others.
type waiter struct {
	request []byte // as it goes over the wire
	started time.Time
	timer   *time.Timer
	done    chan struct{} // has room for one

	// A link holds these until it has let go of the check.
	id    uint64 // 0 until it is sent
	place int    // in the queue until then

	// What came of it, once it is done.
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

// encode keeps the request as it goes over the wire.
func (w *waiter) encode(req *headgate.Request, traceparent string) error {
	w.request = appendRequest(w.request[:0], req, traceparent)
	if len(w.request) > maxRequest {
		return fmt.Errorf("client: the request has %d bytes, of at most %d: send fewer or shorter attributes",
			len(w.request), maxRequest)
	}
	return nil
}

func (w *waiter) begin(timeout time.Duration) {
	w.started = time.Now()
	w.timer.Reset(timeout)
}

func (w *waiter) answer(a *answer) {
	w.response = append(w.response[:0], a.response...)
	w.err, w.code, w.message = nil, a.code, a.message
	w.done <- struct{}{}
}

func (w *waiter) fail(err error) {
	w.err = err
	w.done <- struct{}{}
}
