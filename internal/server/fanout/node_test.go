package fanout

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

func TestMain(m *testing.M) {
	// The client of a Cluster closes unused connections after five seconds, even after it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"))
}

// greet returns a function that replies "node greets query".
func greet(name string) func(context.Context, json.RawMessage) (any, error) {
	return func(_ context.Context, query json.RawMessage) (any, error) {
		var guest string
		if err := json.Unmarshal(query, &guest); err != nil {
			return nil, errors.New("write a name")
		}
		return name + " greets " + guest, nil
	}
}

// start runs a node with a store of its own, as a server does. set may register topics.
func start(t *testing.T, address, name string, set func(*Node)) (*Node, *redisstore.Store) {
	t.Helper()
	store, err := redisstore.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := store.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := New(Options{Bus: store, Node: name, Nodes: func() int { return 3 }, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	g.serve("greeting", greet(name))
	if set != nil {
		set(g)
	}
	run(t, g)
	return g, store
}

// run starts the node and returns when it is subscribed.
func run(t *testing.T, g *Node) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan struct{}), g.ready
	go func() { g.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	select {
	case <-ready:
	case <-time.After(10 * time.Second):
		t.Fatal("not subscribed after 10 s")
	}
}

// query queries greetings, and sorts all replies but the first.
func query(t *testing.T, g *Node) (greeters, problem string, elapsed time.Duration) {
	t.Helper()
	return queryFor(t, g, time.Minute)
}

// queryFor does the same with a timeout.
func queryFor(t *testing.T, g *Node, wait time.Duration) (greeters, problem string, elapsed time.Duration) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	replies, err := g.query(ctx, "greeting", "you")
	if err != nil {
		t.Fatal(err)
	}
	if replies.nodes != 3 {
		t.Errorf("%d nodes", replies.nodes)
	}
	var names []string
	for _, a := range replies.all {
		var text string
		if err := json.Unmarshal(a, &text); err != nil {
			t.Error(err)
		}
		name, _ := strings.CutSuffix(text, " greets you")
		names = append(names, name)
	}
	slices.Sort(names[1:])
	return strings.Join(names, " "), replies.problem, time.Since(began)
}

// busy is how long a machine may be busy with other work.
const busy = 10 * time.Second

// until calls good until it succeeds.
func until(t *testing.T, good func() (ok bool, greeters string)) {
	t.Helper()
	for began := time.Now(); ; {
		ok, greeters := good()
		if ok {
			return
		}
		if time.Since(began) > busy {
			t.Fatalf("after %s: %s", time.Since(began), greeters)
		}
	}
}

func standalone(s *testenv.Server) string { return "redis://" + s.Addr() }

func TestAllReply(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(t *testing.T) string{
		"redis":  func(t *testing.T) string { return standalone(testenv.Start(t, testenv.Redis)) },
		"valkey": func(t *testing.T) string { return standalone(testenv.Start(t, testenv.Valkey)) },
		"cluster": func(t *testing.T) string {
			return "cluster://" + strings.Join(testenv.StartCluster(t, testenv.Redis).Addrs(), ",")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := address(t)
			a, _ := start(t, at, "a", nil)
			b, _ := start(t, at, "b", nil)
			start(t, at, "c", nil)
			for _, node := range []*Node{a, b} {
				want := map[*Node]string{a: "a b c", b: "b a c"}[node]
				until(t, func() (bool, string) {
					greeters, problem, elapsed := query(t, node)
					return greeters == want && problem == "" && elapsed < timeout/2, greeters + problem
				})
			}
		})
	}
}

// TestNodesOfStore checks that the store counts the nodes.
func TestNodesOfStore(t *testing.T) {
	t.Parallel()
	at := standalone(testenv.Start(t, testenv.Redis))
	_, first := start(t, at, "a", nil)
	start(t, at, "b", nil)
	until(t, func() (bool, string) {
		time.Sleep(10 * time.Millisecond)
		return first.Nodes() == 2, strconv.Itoa(first.Nodes()) + " nodes"
	})
}

func TestOneHangs(t *testing.T) {
	t.Parallel()
	at := standalone(testenv.Start(t, testenv.Redis))
	a, _ := start(t, at, "a", nil)
	start(t, at, "b", nil)
	var ended atomic.Bool
	start(t, at, "c", func(g *Node) {
		g.serve("greeting", func(ctx context.Context, _ json.RawMessage) (any, error) {
			<-ctx.Done()
			ended.Store(true)
			return nil, ctx.Err()
		})
	})
	until(t, func() (bool, string) {
		greeters, problem, elapsed := query(t, a)
		ok := greeters == "a b" && problem == "1 of 3 nodes did not answer in time" && elapsed >= timeout && elapsed < 2*timeout
		return ok, greeters + ", " + problem + " after " + elapsed.String()
	})
	until(t, func() (bool, string) {
		time.Sleep(time.Millisecond)
		return ended.Load(), "the context of the hanging node did not end"
	})
}

// TestFailures checks that failures of other nodes are reported with their names, and that the other replies are returned.
func TestFailures(t *testing.T) {
	t.Parallel()
	at := standalone(testenv.Start(t, testenv.Redis))
	a, _ := start(t, at, "a", nil)
	start(t, at, "b", func(g *Node) {
		g.serve("greeting", func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("too shy") })
	})
	start(t, at, "c", func(g *Node) {
		g.serve("greeting", func(context.Context, json.RawMessage) (any, error) { return strings.Repeat("x", maxReply), nil })
	})
	until(t, func() (bool, string) {
		greeters, problem, _ := query(t, a)
		problems := strings.Split(problem, "; ")
		slices.Sort(problems)
		return greeters == "a" && slices.Equal(problems, []string{
			"node b failed: too shy",
			"node c failed: reply of 1048578 bytes: must be at most 1048576: query less",
		}), greeters + ", " + problem
	})
	if _, err := a.query(t.Context(), "greeting", 7); err == nil || err.Error() != "write a name" {
		t.Errorf("%v for an invalid query", err)
	}
	if _, err := a.query(t.Context(), "weather", ""); err == nil {
		t.Error("a reply on an unknown topic")
	}
}

func TestAlone(t *testing.T) {
	t.Parallel()
	g := New(Options{})
	g.serve("greeting", greet("a"))
	replies, err := g.query(t.Context(), "greeting", "you")
	if err != nil || replies.nodes != 1 || replies.problem != "" || len(replies.all) != 1 ||
		string(replies.all[0]) != `"a greets you"` {
		t.Errorf("%+v, %v", replies, err)
	}
}

// TestRedisUnavailable checks that without Redis only this node replies, with the reason, and that all reply soon after Redis
// recovered.
func TestRedisUnavailable(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	server := testenv.Start(t, testenv.Redis)
	a, _ := start(t, standalone(server), "a", nil)
	start(t, standalone(server), "b", nil)
	start(t, standalone(server), "c", nil)
	for _, failure := range []struct{ begin, end func() }{
		{server.Kill, func() { server.Restart(t) }},
		{server.Pause, server.Resume},
		{server.Kill, func() { server.Restart(t) }},
	} {
		failure.begin()
		greeters, problem, elapsed := query(t, a)
		if greeters != "a" || !strings.HasPrefix(problem, "2 of 3 nodes did not answer in time: redisstore: ") || elapsed > 5*timeout {
			t.Errorf("%q, %q after %s", greeters, problem, elapsed)
		}
		failure.end()
		recovered := time.Now()
		allReply(t, a)
		t.Logf("all reply %s after Redis recovered", time.Since(recovered)) // two seconds on an idle machine
	}
}

func TestFailover(t *testing.T) {
	t.Parallel()
	set := testenv.StartSentinels(t, testenv.Redis)
	at := "sentinel://" + strings.Join(set.Addrs(), ",") + "/" + set.Master()
	a, _ := start(t, at, "a", nil)
	start(t, at, "b", nil)
	start(t, at, "c", nil)
	set.Primary(t).Kill()
	set.Failover(t)
	allReply(t, a)
}

// allReply waits until all nodes reply to a.
func allReply(t *testing.T, a *Node) {
	t.Helper()
	until(t, func() (bool, string) {
		greeters, problem, _ := queryFor(t, a, timeout/4)
		return greeters == "a b c" && problem == "", greeters + ", " + problem
	})
}

// TestDisconnected checks that a query is not sent while its replies could not be received.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	g := New(Options{Bus: noBus{t}, Nodes: func() int { return 3 }})
	g.serve("greeting", greet("a"))
	g.connected()
	g.disconnected(errors.New("connection lost"))
	greeters, problem, _ := queryFor(t, g, time.Millisecond)
	if greeters != "a" || problem != "2 of 3 nodes did not answer in time: connection lost" {
		t.Errorf("%q, %q", greeters, problem)
	}
}

// noBus is a bus that must not be used.
type noBus struct{ *testing.T }

func (b noBus) Publish(context.Context, string, []byte) error { b.Error("published"); return nil }

func (b noBus) Subscribe(context.Context, []string, func(string, []byte)) error { return nil }

// TestGarbage checks that messages for other nodes or of other versions are ignored.
func TestGarbage(t *testing.T) {
	t.Parallel()
	at := standalone(testenv.Start(t, testenv.Redis))
	var replied atomic.Int64
	a, store := start(t, at, "a", func(g *Node) {
		g.serve("greeting", func(ctx context.Context, query json.RawMessage) (any, error) {
			replied.Add(1)
			return greet("a")(ctx, query)
		})
	})
	start(t, at, "b", nil)
	start(t, at, "c", nil)
	for _, text := range []string{
		"", "null", "{", "7", `{"v": "1"}`, "\xff\x00", strings.Repeat("[", 100_000),
		`{"v": 2, "id": "x", "from": "y", "topic": "greeting", "question": "you"}`,
		`{"v": 1, "id": "x", "from": "y", "topic": "greeting", "question": "` + strings.Repeat("x", 2*maxReply) + `"}`,
		`{"v": 1, "id": "x", "from": "y", "topic": "weather"}`,
		`{"v": 1, "id": "x", "from": "` + a.id + `", "topic": "greeting", "question": "you"}`,
		`{"v": 1, "id": "x", "from": "y", "answer": {}}`,
	} {
		for _, channel := range []string{queryChannel, a.inbox} {
			if err := store.Publish(t.Context(), channel, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var queries int64
	until(t, func() (bool, string) {
		queries++
		greeters, problem, _ := query(t, a)
		return greeters == "a b c" && problem == "", greeters + ", " + problem
	})
	if len(a.pending) > 0 {
		t.Errorf("%d queries are still pending", len(a.pending))
	}
	if n := replied.Load(); n != queries {
		t.Errorf("%d replies, want %d", n, queries)
	}
}

// TestFlood checks that replies to a flood of queries are limited, and that other queries succeed soon after.
func TestFlood(t *testing.T) {
	t.Parallel()
	at := standalone(testenv.Start(t, testenv.Redis))
	var replied atomic.Int64
	a, store := start(t, at, "a", nil)
	start(t, at, "b", nil)
	start(t, at, "c", func(g *Node) {
		g.serve("greeting", func(ctx context.Context, query json.RawMessage) (any, error) {
			replied.Add(1)
			return greet("c")(ctx, query)
		})
	})
	began := time.Now()
	for i := range 1000 {
		m := `{"v": 1, "id": "` + strconv.Itoa(i) + `", "from": "flood", "topic": "greeting", "question": "you"}`
		if err := store.Publish(t.Context(), queryChannel, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	allReply(t, a)
	if limit := (time.Since(began).Seconds() + 1) * repliesPerSecond; float64(replied.Load()) > limit {
		t.Errorf("%d replies in %s", replied.Load(), time.Since(began))
	}
}

// TestCollect checks that a node's reply counts once, that late replies are ignored, and that the largest reply fits.
func TestCollect(t *testing.T) {
	t.Parallel()
	g := New(Options{})
	p := &pendingQuery{missing: 2, seen: map[string]bool{}, done: make(chan struct{})}
	g.pending["q"] = p
	large := json.RawMessage(`"` + strings.Repeat("x", maxReply-2) + `"`)
	for _, m := range []message{
		{ID: "other", From: "b"},
		{ID: "q", From: "b", Reply: json.RawMessage("1")},
		{ID: "q", From: "b", Reply: json.RawMessage("2")},
		{ID: "q", From: "c", Reply: large},
		{ID: "q", From: "d", Reply: json.RawMessage("4")},
	} {
		m.Version = version
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		g.receive(g.inbox, text)
	}
	if len(p.all) != 2 || string(p.all[0]) != "1" || len(p.all[1]) != maxReply {
		t.Errorf("%d replies", len(p.all))
	}
}
