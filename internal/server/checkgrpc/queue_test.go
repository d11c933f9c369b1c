package checkgrpc

import (
	"sync"
	"testing"

	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// TestResultQueue checks that all results are taken once, in the order of each worker, in messages of at most maxResults,
// before the queue is closed, and that the memory of the queue is bounded by the waiting results.
func TestResultQueue(t *testing.T) {
	t.Parallel()
	const workers, each, inFlight = 8, 10_000, 500
	q := &resultQueue{ready: make(chan struct{}, 1)}
	slots := make(chan struct{}, inFlight)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				slots <- struct{}{}
				q.put(&checkv1.StreamAnswer{Id: uint64(w*each + i)})
			}
		})
	}
	go func() {
		wg.Wait()
		q.close()
	}()
	last := [workers]int{}
	for taken := 0; ; {
		<-q.ready
		results, closed := q.take()
		if closed {
			if taken != workers*each {
				t.Errorf("%d results, want %d", taken, workers*each)
			}
			break
		}
		if len(results) > maxResults {
			t.Fatalf("%d results in a message", len(results))
		}
		for _, a := range results {
			w, i := int(a.GetId())/each, int(a.GetId())%each
			if i != last[w] {
				t.Fatalf("result %d of a worker after %d", i, last[w])
			}
			last[w]++
			<-slots
		}
		taken += len(results)
	}
	if cap(q.results) > 4*inFlight {
		t.Errorf("capacity for %d results, of which at most %d waited", cap(q.results), inFlight)
	}
}
