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
	// The client of a Cluster closes connections it no longer needs five seconds later, come what may.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"))
}

// greet answers "node greets question".
func greet(name string) func(context.Context, json.RawMessage) (any, error) {
	return func(_ context.Context, question json.RawMessage) (any, error) {
		var whom string
		if err := json.Unmarshal(question, &whom); err != nil {
			return nil, errors.New("write a name")
		}
		return name + " greets " + whom, nil
	}
}

// start runs a node as a server does: with a store of its own. More may be served, or a topic otherwise, by set.
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

// run returns when the node hears the others.
func run(t *testing.T, g *Node) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended, hearing := make(chan struct{}), g.hearing
	go func() { g.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	select {
	case <-hearing:
	case <-time.After(10 * time.Second):
		t.Fatal("hears nobody after 10 s")
	}
}

// ask asks for a greeting, and sorts all but the first answer.
func ask(t *testing.T, g *Node) (said, problem string, took time.Duration) {
	t.Helper()
	return askFor(t, g, time.Minute)
}

// askFor is ask by somebody who has little time.
func askFor(t *testing.T, g *Node, wait time.Duration) (said, problem string, took time.Duration) {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	answers, err := g.ask(ctx, "greeting", "you")
	if err != nil {
		t.Fatal(err)
	}
	if answers.nodes != 3 {
		t.Errorf("%d nodes", answers.nodes)
	}
	var names []string
	for _, a := range answers.all {
		var text string
		if err := json.Unmarshal(a, &text); err != nil {
			t.Error(err)
		}
		name, _ := strings.CutSuffix(text, " greets you")
		names = append(names, name)
	}
	slices.Sort(names[1:])
	return strings.Join(names, " "), answers.problem, time.Since(begun)
}

// busy is how long a machine may be busy with other things.
const busy = 10 * time.Second

// until asks again until the answer is as it should be.
func until(t *testing.T, good func() (ok bool, said string)) {
	t.Helper()
	for begun := time.Now(); ; {
		ok, said := good()
		if ok {
			return
		}
		if time.Since(begun) > busy {
			t.Fatalf("after %s: %s", time.Since(begun), said)
		}
	}
}

func standalone(s *testenv.Server) string { return "redis://" + s.Addr() }

func TestAllAnswer(t *testing.T) {
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
			for _, asker := range []*Node{a, b} {
				want := map[*Node]string{a: "a b c", b: "b a c"}[asker]
				until(t, func() (bool, string) {
					said, problem, took := ask(t, asker)
					return said == want && problem == "" && took < patience/2, said + problem
				})
			}
		})
	}
}

// The store counts the nodes.
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
		said, problem, took := ask(t, a)
		ok := said == "a b" && problem == "1 of 3 nodes did not answer in time" && took >= patience && took < 2*patience
		return ok, said + ", " + problem + " after " + took.String()
	})
	until(t, func() (bool, string) {
		time.Sleep(time.Millisecond)
		return ended.Load(), "nobody told the hanging node that its time is over"
	})
}

// TestFailures: what another node cannot say is told with its name, and the rest is there.
func TestFailures(t *testing.T) {
	t.Parallel()
	at := standalone(testenv.Start(t, testenv.Redis))
	a, _ := start(t, at, "a", nil)
	start(t, at, "b", func(g *Node) {
		g.serve("greeting", func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("too shy") })
	})
	start(t, at, "c", func(g *Node) {
		g.serve("greeting", func(context.Context, json.RawMessage) (any, error) { return strings.Repeat("x", maxAnswer), nil })
	})
	until(t, func() (bool, string) {
		said, problem, _ := ask(t, a)
		problems := strings.Split(problem, "; ")
		slices.Sort(problems)
		return said == "a" && slices.Equal(problems, []string{
			"node b failed: too shy",
			"node c failed: the answer has 1048578 bytes, the most is 1048576: ask for less",
		}), said + ", " + problem
	})
	if _, err := a.ask(t.Context(), "greeting", 7); err == nil || err.Error() != "write a name" {
		t.Errorf("%v to a question that makes no sense", err)
	}
	if _, err := a.ask(t.Context(), "weather", ""); err == nil {
		t.Error("an answer on a topic that nobody serves")
	}
}

func TestAlone(t *testing.T) {
	t.Parallel()
	g := New(Options{})
	g.serve("greeting", greet("a"))
	answers, err := g.ask(t.Context(), "greeting", "you")
	if err != nil || answers.nodes != 1 || answers.problem != "" || len(answers.all) != 1 ||
		string(answers.all[0]) != `"a greets you"` {
		t.Errorf("%+v, %v", answers, err)
	}
}

// TestRedisAway: without Redis one node is answered, and it is said why the others are not; soon after it is back all are.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	server := testenv.Start(t, testenv.Redis)
	a, _ := start(t, standalone(server), "a", nil)
	start(t, standalone(server), "b", nil)
	start(t, standalone(server), "c", nil)
	for _, bend := range []struct{ away, back func() }{
		{server.Kill, func() { server.Restart(t) }},
		{server.Pause, server.Resume},
		{server.Kill, func() { server.Restart(t) }},
	} {
		bend.away()
		said, problem, took := ask(t, a)
		if said != "a" || !strings.HasPrefix(problem, "2 of 3 nodes did not answer in time: redisstore: ") || took > 5*patience {
			t.Errorf("%q, %q after %s", said, problem, took)
		}
		bend.back()
		back := time.Now()
		allAnswer(t, a)
		t.Logf("all answer %s after Redis was back", time.Since(back)) // two seconds on a machine that has nothing else to do
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
	allAnswer(t, a)
}

// allAnswer waits until all nodes answer a.
func allAnswer(t *testing.T, a *Node) {
	t.Helper()
	until(t, func() (bool, string) {
		said, problem, _ := askFor(t, a, patience/4)
		return said == "a b c" && problem == "", said + ", " + problem
	})
}

// A question is not sent while its answers could not be heard.
func TestDeaf(t *testing.T) {
	t.Parallel()
	g := New(Options{Bus: noBus{t}, Nodes: func() int { return 3 }})
	g.serve("greeting", greet("a"))
	g.hears()
	g.deafened(errors.New("the wire is cut"))
	said, problem, _ := askFor(t, g, time.Millisecond)
	if said != "a" || problem != "2 of 3 nodes did not answer in time: the wire is cut" {
		t.Errorf("%q, %q", said, problem)
	}
}

// noBus is one that nobody may use.
type noBus struct{ *testing.T }

func (b noBus) Publish(context.Context, string, []byte) error { b.Error("published"); return nil }

func (b noBus) Subscribe(context.Context, []string, func(string, []byte)) error { return nil }

// TestGarbage: what is not for a node, or not of its version, is as if it had not been said.
func TestGarbage(t *testing.T) {
	t.Parallel()
	at := standalone(testenv.Start(t, testenv.Redis))
	var answered atomic.Int64
	a, store := start(t, at, "a", func(g *Node) {
		g.serve("greeting", func(ctx context.Context, question json.RawMessage) (any, error) {
			answered.Add(1)
			return greet("a")(ctx, question)
		})
	})
	start(t, at, "b", nil)
	start(t, at, "c", nil)
	for _, text := range []string{
		"", "null", "{", "7", `{"v": "1"}`, "\xff\x00", strings.Repeat("[", 100_000),
		`{"v": 2, "id": "x", "from": "y", "topic": "greeting", "question": "you"}`,
		`{"v": 1, "id": "x", "from": "y", "topic": "greeting", "question": "` + strings.Repeat("x", 2*maxAnswer) + `"}`,
		`{"v": 1, "id": "x", "from": "y", "topic": "weather"}`,
		`{"v": 1, "id": "x", "from": "` + a.id + `", "topic": "greeting", "question": "you"}`,
		`{"v": 1, "id": "x", "from": "y", "answer": {}}`,
	} {
		for _, channel := range []string{questions, a.inbox} {
			if err := store.Publish(t.Context(), channel, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var asks int64
	until(t, func() (bool, string) {
		asks++
		said, problem, _ := ask(t, a)
		return said == "a b c" && problem == "", said + ", " + problem
	})
	if len(a.asked) > 0 {
		t.Errorf("%d questions are still open", len(a.asked))
	}
	if n := answered.Load(); n != asks {
		t.Errorf("%d questions were answered, not %d", n, asks)
	}
}

// TestFlood: whoever asks a thousand times is answered as often as a node likes, and the others are answered soon after.
func TestFlood(t *testing.T) {
	t.Parallel()
	at := standalone(testenv.Start(t, testenv.Redis))
	var answered atomic.Int64
	a, store := start(t, at, "a", nil)
	start(t, at, "b", nil)
	start(t, at, "c", func(g *Node) {
		g.serve("greeting", func(ctx context.Context, question json.RawMessage) (any, error) {
			answered.Add(1)
			return greet("c")(ctx, question)
		})
	})
	begun := time.Now()
	for i := range 1000 {
		m := `{"v": 1, "id": "` + strconv.Itoa(i) + `", "from": "flood", "topic": "greeting", "question": "you"}`
		if err := store.Publish(t.Context(), questions, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	allAnswer(t, a)
	if most := (time.Since(begun).Seconds() + 1) * answersPerSecond; float64(answered.Load()) > most {
		t.Errorf("%d answers in %s", answered.Load(), time.Since(begun))
	}
}

// Answers count once for each node, and not after the question has ended. The largest fits.
func TestTake(t *testing.T) {
	t.Parallel()
	g := New(Options{})
	a := &asking{missing: 2, heard: map[string]bool{}, done: make(chan struct{})}
	g.asked["q"] = a
	large := json.RawMessage(`"` + strings.Repeat("x", maxAnswer-2) + `"`)
	for _, m := range []message{
		{ID: "other", From: "b"},
		{ID: "q", From: "b", Answer: json.RawMessage("1")},
		{ID: "q", From: "b", Answer: json.RawMessage("2")},
		{ID: "q", From: "c", Answer: large},
		{ID: "q", From: "d", Answer: json.RawMessage("4")},
	} {
		m.Version = version
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		g.hear(g.inbox, text)
	}
	if len(a.all) != 2 || string(a.all[0]) != "1" || len(a.all[1]) != maxAnswer {
		t.Errorf("%d answers", len(a.all))
	}
}
