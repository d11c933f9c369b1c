package checkgrpc

import (
	"sync"

	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// resultQueue holds the results of a stream until they are sent. Workers never wait to add one: the window of the stream
// bounds their number. A channel of that capacity would take 8 kB of every stream, most of which are idle.
type resultQueue struct {
	// ready has an element while there are results, and after close.
	ready chan struct{}

	mu      sync.Mutex
	results []*checkv1.StreamAnswer
	closed  bool
}

// put adds a result.
func (q *resultQueue) put(result *checkv1.StreamAnswer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.results = append(q.results, result)
	if len(q.results) == 1 {
		q.wake()
	}
}

// close makes take report that no more results will come.
func (q *resultQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake()
}

// take removes as many results as one message may have. Call it after receiving from ready.
func (q *resultQueue) take() (taken []*checkv1.StreamAnswer, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.results) == 0 {
		return nil, q.closed
	}
	n := min(len(q.results), maxResults)
	if taken, q.results = q.results[:n:n], q.results[n:]; len(q.results) == 0 {
		q.results = nil // an idle stream uses no memory
	}
	if len(q.results) > 0 || q.closed {
		q.wake()
	}
	return taken, false
}

func (q *resultQueue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}
