package checkgrpc

import (
	"sync"
	"testing"

	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// All answers are taken once, in the order of each worker, in messages of at most mostAnswers; then the queue is closed. It takes no
// more memory than the answers that wait at a time.
func TestAnswerQueue(t *testing.T) {
	t.Parallel()
	const workers, each, inFlight = 8, 10_000, 500
	q := &answerQueue{ready: make(chan struct{}, 1)}
	room := make(chan struct{}, inFlight)
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for i := range each {
				room <- struct{}{}
				q.put(&checkv1.StreamAnswer{Id: uint64(w*each + i)})
			}
		})
	}
	go func() {
		running.Wait()
		q.close()
	}()
	last := [workers]int{}
	for taken := 0; ; {
		<-q.ready
		answers, closed := q.take()
		if closed {
			if taken != workers*each {
				t.Errorf("%d answers, want %d", taken, workers*each)
			}
			break
		}
		if len(answers) > mostAnswers {
			t.Fatalf("%d answers in a message", len(answers))
		}
		for _, a := range answers {
			w, i := int(a.GetId())/each, int(a.GetId())%each
			if i != last[w] {
				t.Fatalf("answer %d of a worker after %d", i, last[w])
			}
			last[w]++
			<-room
		}
		taken += len(answers)
	}
	if cap(q.answers) > 4*inFlight {
		t.Errorf("room for %d answers, of which at most %d waited", cap(q.answers), inFlight)
	}
}
