package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/judge"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

// slots has three nodes with the middleware in front of a backend, which records what it has in flight, under random concurrency
// limits. Clients leave, handlers panic, nodes are killed and paused, and the store loses its counters. The backend works on when a node
// was killed: subjects with a short lease have some requests that outlast it.
func slots(w *world) {
	const nodes = 3
	s := &slotWorld{world: w, backend: newBackend(w), requests: w.some(10_000, 1_000_000)}
	s.redis, s.address = w.redis()
	var document strings.Builder
	document.WriteString("rules:\n")
	for i := range w.some(6, 12) {
		limit := judge.Limit{Algorithm: judge.Concurrency, Count: 2 + w.rand.Int64N(49), Window: shortLease.Microseconds()}
		if i == longGroup {
			limit.Count = 2 + w.rand.Int64N(3)
		}
		lease := fmt.Sprintf(", lease: %s", shortLease)
		if !w.short && i%2 == 0 {
			limit.Window, lease = 10e6, "" // the default
		}
		s.groups = append(s.groups, []int{w.limits(limit)})
		fmt.Fprintf(&document, "  - {id: %[1]s, match: {path: /%[1]s}, by: [%[2]s], cost: {from: header.x-cost, max: 5}, limit: {concurrent: %[3]d%[4]s}}\n",
			groupName(i), subjectAttribute, limit.Count, lease)
	}
	s.document = document.String()
	w.judge(judge.Check{Kind: judge.KindSlots})
	for range nodes {
		s.nodes = append(s.nodes, s.start())
	}
	w.awaitFleet()
	ctx, done := context.WithCancel(w.Context())
	defer done()
	stop := suite.Background(ctx, s.probe)
	var clients sync.WaitGroup
	for group := range s.groups {
		limit := w.header.Limits[s.groups[group][0]]
		demand := []float64{0.4, 2, 1}[group%3] // of the limit
		for i := range 1 + int(demand*float64(limit.Count)/3) {
			random := rand.New(rand.NewPCG(w.header.Seed, uint64(group*1000+i)))
			clients.Go(func() {
				for ctx.Err() == nil {
					s.request(ctx, group, random)
				}
			})
		}
	}
	began := time.Now()
	for fault := 0; (s.backend.served() < s.requests || fault < 3) && ctx.Err() == nil; fault++ {
		if w.short && fault >= 3 && time.Since(began) > slowest {
			break
		}
		w.Sleep(time.Duration(w.some(700, 1500)+w.rand.IntN(500)) * time.Millisecond)
		s.breakSomething(fault)
	}
	done()
	clients.Wait()
	s.drain()
	stop()
	w.addRecords(s.backend.uses...)
}

const (
	// shortLease is the lease of half of the rules, and of all in short runs.
	shortLease = 2 * time.Second
	// slowest is when a short run ends, even if it has fewer requests.
	slowest = 10 * time.Second
	// longGroup has few requests, most of them so long that only renewals keep their units.
	longGroup = 1
)

// slotWorld is the environment of the scenario.
type slotWorld struct {
	*world
	redis    *testenv.Server
	address  string
	groups   groups
	document string
	backend  *backend
	client   http.Client

	mu    sync.Mutex
	nodes []*slotNode

	requests int // that reach the backend
}

// slotNode is a node that serves HTTP.
type slotNode struct {
	*worker
	paused bool
}

func (s *slotWorld) start() *slotNode {
	listen := testenv.FreeAddress(s)
	spec := Spec{Redis: s.address, Groups: s.groups, Document: s.document, Listen: listen, Backend: s.backend.url}
	return &slotNode{worker: s.spawn(1, spec)[0]}
}

// pick returns the address of a random node that is not paused.
func (s *slotWorld) pick(random *rand.Rand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if n := s.nodes[random.IntN(len(s.nodes))]; !n.paused {
			return n.spec.Listen
		}
	}
}

// request sends one request, which the client may leave.
func (s *slotWorld) request(ctx context.Context, group int, random *rand.Rand) {
	limit := s.header.Limits[s.groups[group][0]]
	hold, pause := time.Duration(random.IntN(20))*time.Millisecond, time.Duration(random.IntN(4))*time.Millisecond
	if limit.Window == shortLease.Microseconds() && (group == longGroup || random.IntN(200) == 0) {
		hold, pause = time.Duration(random.Int64N(int64(shortLease*3/2))), 20*time.Millisecond
	}
	patience := time.Minute
	if random.IntN(20) == 0 {
		patience = time.Duration(random.IntN(20_000)) * time.Microsecond
	}
	own, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	url := "http://" + s.pick(random) + "/" + groupName(group)
	request, err := http.NewRequestWithContext(own, http.MethodGet, url, http.NoBody)
	if err != nil {
		return
	}
	request.Header.Set(headerSubject, "slots/"+groupName(group))
	request.Header.Set(headerCost, strconv.FormatInt(min(limit.Count, 1+random.Int64N(5)), 10))
	request.Header.Set(headerLimit, strconv.Itoa(s.groups[group][0]))
	request.Header.Set(headerHold, strconv.FormatInt(hold.Microseconds(), 10))
	if random.IntN(50) == 0 {
		request.Header.Set(headerPanic, "yes")
	}
	if response, err := s.client.Do(request); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests {
			pause += time.Duration(random.IntN(10)) * time.Millisecond
		}
	}
	suite.SleepUntil(ctx, time.Now().Add(pause))
}

// breakSomething kills a node and starts another, pauses one for more than a lease or for less, or empties the store.
func (s *slotWorld) breakSomething(fault int) {
	i, began := s.rand.IntN(len(s.nodes)), time.Now()
	n := s.nodes[i]
	pause := time.Duration(200+s.rand.IntN(500)) * time.Millisecond
	switch fault % 4 {
	case 0:
		n.Kill()
		s.event(began, judge.Record{Note: judge.NoteKill, Process: n.spec.Process})
		fresh := s.start()
		s.mu.Lock()
		s.nodes[i] = fresh
		s.mu.Unlock()
	case 1:
		s.redis.Must(s, "FLUSHALL")
		s.event(began, judge.Record{Note: judge.NoteFlush})
		s.Sleep(time.Duration(s.some(700, 3333)) * time.Millisecond) // until nodes have reported their units
	case 2:
		pause += shortLease
		fallthrough
	case 3:
		s.setPaused(n, true)
		n.Pause()
		s.Sleep(pause)
		n.Resume()
		s.setPaused(n, false)
		s.event(began, judge.Record{Note: judge.NoteStop, Process: n.spec.Process})
	}
}

func (s *slotWorld) setPaused(n *slotNode, paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.paused = paused
}

// probe records when the store did not answer.
func (s *slotWorld) probe(ctx context.Context) {
	const every, late = 50 * time.Millisecond, 300 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := s.redis.Do("PING"); err != nil || time.Since(began) > late {
			s.event(began, judge.Record{Note: judge.NoteStall})
		}
		suite.SleepUntil(ctx, began.Add(every))
	}
}

// drain waits until the store has no units in use, for at most the lease of a killed node and a margin, and records its counts.
func (s *slotWorld) drain() {
	deadline := time.Now().Add(15 * time.Second)
	for group, limits := range s.groups {
		count := s.header.Limits[limits[0]].Count
		for {
			c := Command{Op: judge.OpPeek, Group: group, Subject: "slots/" + groupName(group), Method: http.MethodGet, Path: "/" + groupName(group)}
			peeks, err := s.nodes[0].peeks(c)
			testenv.NoError(s, err)
			if len(peeks) > 0 && (peeks[0].Remaining == count || time.Now().After(deadline)) {
				s.addRecords(peeks...)
				break
			}
			s.Sleep(50 * time.Millisecond)
		}
	}
}

// backend records the requests that it serves. It works as long as a request says, even if its caller leaves.
type backend struct {
	url string

	mu   sync.Mutex
	uses []judge.Record
}

func newBackend(w *world) *backend {
	listener, err := (&net.ListenConfig{}).Listen(w.Context(), "tcp", "127.0.0.1:0")
	testenv.NoError(w, err)
	b := &backend{url: "http://" + listener.Addr().String()}
	server := &http.Server{Handler: b, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			w.Error(err)
		}
	})
	w.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return b
}

// ServeHTTP implements http.Handler.
func (b *backend) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(r.Header.Get(name), 10, 64)
		return n
	}
	use := judge.Record{
		Op: judge.OpUse, Process: int(number(headerNode)), Subject: r.Header.Get(headerSubject), Cost: number(headerCost), Allowed: true,
		Limit: int(number(headerLimit)), Path: r.Header.Get(headerPath), Decided: number(headerDecided), Sent: time.Now().UnixMicro(),
	}
	time.Sleep(time.Duration(number(headerHold)) * time.Microsecond)
	use.Received = time.Now().UnixMicro()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses = append(b.uses, use)
}

// served returns how many requests have ended.
func (b *backend) served() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.uses)
}
