package client

import (
	"bytes"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/protofields"
)

// release is the end of a request whose slots the server of a link has. Slots belong to the stream: they are released on it, or with
// it, so that none are lost with a connection.
type release struct {
	slots   []byte
	outcome headgate.Outcome
}

// settle makes Done release the slots of a check that has a response, if it has any.
func (l *link) settle(w *waiter, d *headgate.Decision) {
	slots, err := slotsOf(w.response)
	switch {
	case err != nil:
		l.cancel(err) // the server then releases them, whichever they are
	case slots == nil:
		l.drop()
	default:
		d.OnDone(func(o headgate.Outcome) { l.release(slots, o) })
	}
}

// slotsOf returns the slots in a CheckResponse, or nil if it has none.
func slotsOf(response []byte) (slots []byte, err error) {
	r := protofields.Reader{Rest: response}
	for r.Next() {
		if r.Tag == 11<<3|protofields.Bytes && len(r.Bytes) > 0 {
			slots = bytes.Clone(r.Bytes)
		}
	}
	return slots, r.Err
}

// release releases slots of a request that has ended. If the link has ended, nothing is sent: the server has released them.
func (l *link) release(slots []byte, o headgate.Outcome) {
	l.mu.Lock()
	l.releases = append(l.releases, release{slots, o})
	l.mu.Unlock()
	l.drop()
}

// drop records that a check that was begun needs the link no longer.
func (l *link) drop() {
	l.mu.Lock()
	l.begun--
	l.mu.Unlock()
	l.wakeSender()
}

// claim removes the waiter of a response from those that wait. If a check that begins was abandoned, its slots are released. The caller
// holds mu.
func (l *link) claim(r *reply) error {
	r.waiter = l.sent[r.id]
	if r.waiter != nil {
		delete(l.sent, r.id)
		if r.waiter.begins {
			l.begun++
		}
		return nil
	}
	slots, err := slotsOf(r.response)
	if slots != nil {
		l.releases = append(l.releases, release{slots, headgate.Outcome{Cancelled: true}})
	}
	return err
}

// appendRelease adds a release to a CheckStreamRequest.
func (o *raw) appendRelease(r *release) {
	data, at := protofields.Open(o.data, 2<<3|protofields.Bytes)
	data = protofields.AppendBytes(data, 1<<3|protofields.Bytes, r.slots)
	data = protofields.AppendNumber(data, 2<<3, uint64(r.outcome.Duration.Microseconds()))
	data = protofields.AppendNumber(data, 3<<3, uint64(r.outcome.Status))
	data = protofields.AppendBool(data, 4<<3, r.outcome.Cancelled)
	o.data = protofields.Close(data, at)
}
