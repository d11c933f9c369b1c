package attack

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/server/check"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
	"github.com/headgate/headgate/storewrap"
)

// overload is the result of overloadCallers callers that concurrently check one counter with a limit of overloadLimit.
type overload struct {
	admitted int64
	paths    map[headgate.Path]int
	stats    storewrap.Stats
}

const overloadCallers, overloadLimit = 4_400, 1_000

func overloadOf(t *testing.T, store *storewrap.Store, strict bool) overload {
	t.Helper()
	limiter := newLimiter(t, store, headgate.Rule{
		ID: fmt.Sprint("strict-", strict), By: []string{"user"}, Strict: strict,
		Limit: headgate.Limit{Algorithm: headgate.FixedWindow, Count: overloadLimit, Window: 100 * 24 * time.Hour},
	})
	o := overload{paths: map[headgate.Path]int{}}
	var running sync.WaitGroup
	var mu sync.Mutex
	start := make(chan struct{})
	for range overloadCallers {
		running.Go(func() {
			<-start
			d, err := limiter.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"user": "u"}})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			o.paths[d.Path]++
			if d.Allowed {
				o.admitted++
			}
		})
	}
	close(start)
	running.Wait()
	o.stats = store.Stats()
	t.Logf("strict %v: %d callers were admitted %d of %d, decided by %v, %d calls rejected, circuit opened %d times", strict,
		overloadCallers, o.admitted, overloadLimit, o.paths, o.stats.Rejected, o.stats.CircuitOpened)
	return o
}

// TestOverloadCallers sends thousands of concurrent checks in one process, far more than its calls to Redis in flight. With a long
// deadline each waits for its turn and Redis decides: no more than the limit is admitted.
func TestOverloadCallers(t *testing.T) {
	for range size(2, 10) {
		store := storewrap.New(openRedis(t, startRedis(t)), storewrap.Options{Log: quiet(), Deadline: time.Minute})
		t.Cleanup(store.Close)
		for _, strict := range []bool{false, true} {
			o := overloadOf(t, store, strict)
			if o.admitted != overloadLimit || o.paths[headgate.PathLocal] > 0 || o.stats.CircuitOpened > 0 {
				t.Errorf("%d admitted of %d, decided by %v, circuit opened %d times", o.admitted, overloadLimit, o.paths, o.stats.CircuitOpened)
			}
		}
	}
}

const overloadBatches = 4

// overloadServer starts a server with a healthy Redis.
func overloadServer(t *testing.T, redis string) *fleet.Node {
	t.Helper()
	return startServer(t, "redis: {address: \"redis://"+startRedis(t).Addr()+"\""+redis+"}", `
rules:
  - id: all
    by: [user]
    limit: 1000000/h
    strict: true
`)
}

// TestOverloadBatches sends a server several batches of the maximum size concurrently. Their calls do not exceed the server's
// concurrency limit: Redis decides all of them.
func TestOverloadBatches(t *testing.T) {
	node := overloadServer(t, ", deadline: 1s") // a busy machine must not look like an outage of Redis
	conn, err := grpc.NewClient(node.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	client := checkv1.NewCheckServiceClient(conn)
	inBatches(t, func(batch int) map[string]int {
		requests := make([]*checkv1.CheckRequest, check.MaxBatch)
		for i := range requests {
			requests[i] = &checkv1.CheckRequest{Attributes: map[string]string{"user": fmt.Sprintf("u%d-%d", batch, i)}}
		}
		paths := map[string]int{}
		response, err := client.CheckBatch(t.Context(), &checkv1.CheckBatchRequest{Requests: requests})
		if err != nil {
			t.Error(err)
		}
		for _, a := range response.GetAnswers() {
			paths[a.GetResponse().GetPath()]++
		}
		return paths
	}, func(paths map[string]int) {
		if paths["store"] != overloadBatches*check.MaxBatch {
			t.Errorf("decided by %v, want all by Redis", paths)
		}
	})
}

// inBatches repeatedly sends several batches concurrently, and judges the paths of their decisions.
func inBatches(t *testing.T, send func(batch int) map[string]int, judge func(paths map[string]int)) {
	t.Helper()
	for try := range size(2, 10) {
		paths := map[string]int{}
		var running sync.WaitGroup
		var mu sync.Mutex
		for i := range overloadBatches {
			running.Go(func() {
				got := send(i)
				mu.Lock()
				defer mu.Unlock()
				for path, n := range got {
					paths[path] += n
				}
			})
		}
		running.Wait()
		t.Logf("try %d: %d batches of %d checks, decided by %v", try, overloadBatches, check.MaxBatch, paths)
		judge(paths)
	}
}
