package checkgrpc

import (
	"sync"

	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// answerQueue holds the answers of a stream until they are sent. Workers never wait to add one: how many there may be is what the
// window of the stream admits. A channel of that capacity would take 8 kB of every stream, most of which are idle.
type answerQueue struct {
	// ready has an element while there are answers, or when no more will come.
	ready chan struct{}

	mu      sync.Mutex
	answers []*checkv1.StreamAnswer
	closed  bool
}

// put adds an answer.
func (q *answerQueue) put(answer *checkv1.StreamAnswer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answers = append(q.answers, answer)
	if len(q.answers) == 1 {
		q.wake()
	}
}

// close makes take report that no more answers will come.
func (q *answerQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake()
}

// take removes as many answers as go into one message. Call it after receiving from ready.
func (q *answerQueue) take() (taken []*checkv1.StreamAnswer, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.answers) == 0 {
		return nil, q.closed
	}
	n := min(len(q.answers), mostAnswers)
	if taken, q.answers = q.answers[:n:n], q.answers[n:]; len(q.answers) == 0 {
		q.answers = nil // an idle stream holds on to nothing
	}
	if len(q.answers) > 0 || q.closed {
		q.wake()
	}
	return taken, false
}

func (q *answerQueue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}
