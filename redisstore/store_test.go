package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ address, hosts, problem string }{
		{"redis://localhost", "localhost:6379", ""},
		{"redis://user:p%40ss@10.0.0.1:7000/3", "10.0.0.1:7000", ""},
		{"rediss://[::1]:6380", "[::1]:6380", ""},
		{"redis://[::1]", "[::1]:6379", ""},
		{"sentinel://a,b:1,c/main", "a:26379 b:1 c:26379", ""},
		{"cluster://a:1,b", "a:1 b:6379", ""},
		{"localhost:6379", "", "missing scheme"},
		{"http://localhost", "", `unknown scheme "http"`},
		{"redis://", "", "missing host"},
		{"redis://a,b", "", "several hosts"},
		{"redis://a/x", "", "path is not a database number"},
		{"redis://a:6379?password=secret", "", "parameters are not supported"},
		{"redis://a/0?password=secret", "", "parameters are not supported"},
		{"sentinel://a/main?password=secret", "", "parameters are not supported"},
		{"cluster://a:1,b:2#secret", "", "parameters are not supported"},
		{"redis://user:secret", "", "port is not a number"},
		{"sentinel://a", "", "missing master name"},
		{"cluster://a/1", "", "a Cluster has no database numbers"},
		{"redis://user:secret@", "", "missing host"},
		{"user:secret@localhost:6379", "", "missing scheme"},
	} {
		co, err := clientOption(Options{Address: c.address})
		switch {
		case c.problem == "" && (err != nil || strings.Join(co.InitAddress, " ") != c.hosts):
			t.Errorf("%s: %v, %v", c.address, co.InitAddress, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem) || !strings.Contains(err.Error(), "write redis://")):
			t.Errorf("%s: %v", c.address, err)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("the password is in the message: %v", err)
		}
	}
	co, _ := clientOption(Options{Address: "redis://user:p%40ss@h/3"}) //nolint:gosec // not a real password
	if co.Username != "user" || co.Password != "p@ss" || co.SelectDB != 3 {
		t.Errorf("user, password and database are %q, %q, %d", co.Username, co.Password, co.SelectDB)
	}
}

func TestReadyExplainsFailure(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	server.Must(t, "CONFIG", "SET", "requirepass", "secret")
	for address, want := range map[string]string{
		"redis://127.0.0.1:1":      "check that Redis is running there",
		"redis://" + server.Addr(): "user, password and TLS",
	} {
		s, err := Open(address)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Ready(t.Context())
		for tries := 0; err != nil && strings.Contains(err.Error(), "timeout") && tries < 20; tries++ {
			err = s.Ready(t.Context()) // on a machine that stalls, an attempt to connect may time out
		}
		if !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v", address, err)
		}
		s.Close()
	}
	if _, err := New(Options{Address: "redis://x", Namespace: "{a}"}); err == nil || !strings.Contains(err.Error(), "namespace") {
		t.Errorf("a namespace with braces: %v", err)
	}
	open(t, "redis://:secret@"+server.Addr())
}

// TestNodes checks that nodes that share a namespace count each other, and that removed nodes are dropped. Mutants of the
// script must be detected.
func TestNodes(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	if err := countNodes(t, server, "nodes", announceScript); err != nil {
		t.Error(err)
	}
	for i, mutant := range [][2]string{
		{"ARGV[2] == '0'", "ARGV[2] ~= '0'"},
		{"== tonumber(ARGV[3])", "~= tonumber(ARGV[3])"},
		{"== tonumber(ARGV[3])", ">= 0"},
		{"kept and 1 or 0", "1"},
		{"kept and 1 or 0", "0"},
	} {
		broken := newScript(strings.Replace(announceText, mutant[0], mutant[1], 1))
		if err := countNodes(t, server, "broken"+strconv.Itoa(i), broken); err == nil || broken.text == announceText {
			t.Errorf("%q instead of %q is not detected", mutant[1], mutant[0])
		}
	}
}

func countNodes(t *testing.T, server *testenv.Server, namespace string, announce script) error {
	var passed atomic.Int64 // by which the nodes' clocks are advanced
	node := func(namespace string) *Store {
		co, err := clientOption(Options{Address: standalone(server)})
		if err != nil {
			t.Fatal(err)
		}
		s := newStore(Options{Namespace: namespace}, false)
		s.announce = announce
		s.wall = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
		s.dial = func() (rueidis.Client, error) { return rueidis.NewClient(co) }
		s.stop = func() {} // no heartbeat: the test calls it
		t.Cleanup(s.Close)
		s.connect(t.Context())
		return s
	}
	a, b, other := node(namespace), node(namespace), node(namespace+"-other")
	count := func(s *Store) int {
		s.heartbeat(t.Context())
		r, err := headgate.Take(t.Context(), s, headgate.PerSecond(1000), "nodes", "me")
		if err != nil {
			t.Fatal(err)
		}
		return int(r.Nodes)
	}
	observe := func(stores ...*Store) { // for announceTTL
		for end := passed.Load() + int64(announceTTL); passed.Load() < end; passed.Add(int64(heartbeatInterval)) {
			for _, s := range stores {
				s.heartbeat(t.Context())
			}
		}
	}
	if x, y, z := count(a), count(b), count(other); x != 2 || y != 2 || z != 1 {
		return fmt.Errorf("%d, %d and %d nodes", x, y, z)
	}
	c := node(namespace)
	if n := count(a); n != 3 {
		return fmt.Errorf("%d nodes after one joined", n)
	}
	ranks := map[int64]bool{}
	for _, s := range []*Store{a, b, c} {
		count(s)
		ranks[s.members.Load().rank] = true
	}
	if len(ranks) != 3 || !ranks[1] || !ranks[2] || !ranks[3] || other.members.Load().rank != 1 {
		return fmt.Errorf("ranks %v", ranks)
	}
	observe(a, b)
	c.announceWithTimeout(t.Context(), 0)
	if x, y := count(a), count(b); x != 2 || y != 2 {
		return fmt.Errorf("%d and %d nodes after one signed off", x, y)
	}
	for how, lose := range map[string]func(){
		"restarted empty": func() { server.Must(t, "DEL", a.prefix+"nodes") },
		"replica that lags": func() {
			server.Must(t, "ZINCRBY", a.prefix+"nodes", "-1", a.node)
			server.Must(t, "ZREM", a.prefix+"nodes", b.node)
		},
	} {
		if lose(); count(a) != 2 {
			return fmt.Errorf("%s: %d nodes after announcements were lost", how, a.Nodes())
		}
		if observe(a); count(a) != 1 {
			return fmt.Errorf("%s: %d nodes although one did not announce itself again", how, a.Nodes())
		}
		if x, y := count(b), count(a); x != 2 || y != 2 {
			return fmt.Errorf("%s: %d and %d nodes after one announced itself again", how, x, y)
		}
	}
	observe(a)
	if err := b.announceFor(t.Context(), 50*time.Millisecond); err != nil {
		return err
	}
	time.Sleep(100 * time.Millisecond)
	if n := count(a); n != 1 {
		return fmt.Errorf("%d nodes after one expired", n)
	}
	return nil
}

// stallClient passes on some script calls and then blocks them until the test ends.
type stallClient struct {
	rueidis.Client
	sha  string
	let  atomic.Int64
	held context.Context
}

func (c *stallClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if slices.Contains(cmd.Commands(), c.sha) && c.let.Add(-1) < 0 {
		<-c.held.Done()
	}
	return c.Client.Do(ctx, cmd)
}

// TestDenialDoesNotWait checks that a denied caller with a short deadline does not wait for the refunds.
func TestDenialDoesNotWait(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	s := open(t, cluster(startCluster(t)))
	held, release := context.WithCancel(t.Context())
	t.Cleanup(release)
	stall := &stallClient{Client: *s.link.client.Load(), sha: s.take.sha, held: held}
	stall.let.Store(2)
	var client rueidis.Client = stall
	s.link.client.Store(&client)
	charges := []headgate.Charge{
		{Subject: subjects(2)[0], Counter: unlimitedCounter, Limit: unlimited, Cost: 1},
		{Subject: subjects(2)[1], Counter: unlimitedCounter, Limit: headgate.Limit{}, Cost: 1},
	}
	results := make([]headgate.Result, len(charges))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := s.Take(ctx, charges, results)
	if elapsed := time.Since(start); err != nil || results[0].Granted != 0 || results[1].Allowed || elapsed > 2*time.Second {
		t.Errorf("after %s: %v, %+v", elapsed, err, results)
	}
}

// TestPreload checks that flushed and promoted primaries get the scripts before they are called.
func TestPreload(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	c := testenv.StartCluster(t, testenv.Redis)
	s := open(t, cluster(c))
	have := func() (n int) {
		for _, server := range c.Primaries(t) {
			for _, sc := range []script{s.take, s.announce} {
				list, _ := server.Must(t, "SCRIPT", "EXISTS", sc.sha).([]any)
				if len(list) == 1 && list[0] == int64(1) {
					n++
				}
			}
		}
		return n
	}
	if n := have(); n != 6 {
		t.Errorf("%d scripts on 3 primaries", n)
	}
	for _, server := range c.Primaries(t) {
		server.Must(t, "SCRIPT", "FLUSH")
	}
	s.heartbeat(t.Context())
	if n := have(); n != 6 {
		t.Errorf("%d scripts on 3 primaries after a flush", n)
	}
	c.Failover(t, 0)
	if n := have(); n != 4 {
		t.Errorf("%d scripts on 3 primaries, one of them new", n)
	}
	for end := time.Now().Add(10 * time.Second); have() != 6; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d scripts on 3 primaries long after a failover", have())
		}
	}
}

// TestDeadShardFailsOnlyItsCharges makes a request over subjects of a dead and of a live shard.
func TestDeadShardFailsOnlyItsCharges(t *testing.T) {
	t.Parallel()
	c := testenv.StartCluster(t, testenv.Redis, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
	s := open(t, cluster(c))
	all := subjects(20)
	dead, alive := all[0], all[0]
	for _, subject := range all {
		if s.Shard(subject) != s.Shard(dead) {
			alive = subject
		}
	}
	c.PrimaryOf(t, int(s.slot(dead))).Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	charges := []headgate.Charge{
		{Subject: dead, Counter: unlimitedCounter, Limit: unlimited, Cost: 3},
		{Subject: alive, Counter: unlimitedCounter, Limit: unlimited, Cost: 3},
	}
	results := make([]headgate.Result, 2)
	err := s.Take(ctx, charges, results)
	if !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(results[0].Err, headgate.ErrUnavailable) || results[0].Granted != 0 {
		t.Errorf("dead shard: %v, %+v", err, results[0])
	}
	if results[1].Err != nil || results[1].Granted != 3 || results[1].Receipt.Units != 3 {
		t.Errorf("live shard: %+v", results[1])
	}

	// If the live shard denies, nothing is recorded.
	charges[1].Cost = headgate.MaxCost
	_ = s.Take(ctx, charges, results)
	if results[1].Err != nil || results[1].Allowed || results[0].Err == nil {
		t.Errorf("denied: %+v", results)
	}
}

// TestCloseStopsGoroutines checks that no goroutine outlives the store.
func TestCloseStopsGoroutines(t *testing.T) {
	server := startServer(t)
	before := goleak.IgnoreCurrent()
	s, err := Open(standalone(server))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := headgate.Take(t.Context(), s, headgate.PerSecond(1), "a", "b"); err != nil {
		t.Fatal(err)
	}
	_, ended := listen(t, s, "news")
	if err := s.Publish(t.Context(), "news", []byte("a")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	<-ended
	goleak.VerifyNone(t, before)
}

// TestManyCharges checks that a request that is too heavy for one call is still recorded as a whole or not at all.
func TestManyCharges(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	const many = 5 * headgate.MaxWeight
	var alone, together [many]headgate.Charge
	log := headgate.Limit{Algorithm: headgate.SlidingLog, Count: headgate.MaxLogCount, Window: time.Hour}
	for i := range alone {
		alone[i] = headgate.Charge{Subject: headgate.SubjectOf(string(rune(i))), Counter: unlimitedCounter, Limit: unlimited, Cost: 1}
		together[i] = headgate.Charge{Subject: headgate.SubjectOf("one"), Counter: unlimitedCounter, Limit: unlimited, Cost: 1}
		if i%7 == 0 {
			together[i].Limit, together[i].Counter = log, headgate.CounterOf("log", "", log.Algorithm)
		}
		if i%5 == 1 {
			together[i].Hold = time.Minute
		}
	}
	for name, address := range map[string]string{
		"standalone": standalone(startServer(t)), "cluster": cluster(startCluster(t)),
	} {
		s := open(t, address)
		for kind, charges := range map[string][]headgate.Charge{"alone": alone[:], "together": together[:]} {
			take := func(charges []headgate.Charge) []headgate.Result {
				results := make([]headgate.Result, len(charges))
				if err := s.Take(t.Context(), charges, results); err != nil {
					t.Fatalf("%s, %s: %v", name, kind, err)
				}
				return results
			}
			for i, r := range take(charges) {
				if r.Granted != 1 {
					t.Fatalf("%s, %s: charge %d: %+v", name, kind, i, r)
				}
			}
			peek := slices.Clone(charges)
			for i := range peek {
				peek[i].Cost, peek[i].Hold = 0, 0
			}
			before := take(peek)
			// The last one does not fit.
			for i, r := range take(append(slices.Clone(charges), headgate.Charge{
				Subject: headgate.SubjectOf("denies"), Counter: unlimitedCounter, Limit: headgate.PerHour(1), Cost: 2,
			})) {
				if r.Granted != 0 || r.Allowed != (i < many) {
					t.Fatalf("%s, %s: charge %d of a denied request: %+v", name, kind, i, r)
				}
			}
			for i, r := range take(peek) {
				if r.Remaining < before[i].Remaining {
					t.Fatalf("%s, %s: counter %d has %d left, and %d before a denied request", name, kind, i, r.Remaining, before[i].Remaining)
				}
			}
		}
	}
}

// TestForeignData checks that stored data that the script cannot read is an error and not a decision.
func TestForeignData(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	s := open(t, standalone(server))
	subject := headgate.SubjectOf("me")
	charge := []headgate.Charge{{Subject: subject, Counter: unlimitedCounter, Limit: unlimited, Cost: 1}}
	results := make([]headgate.Result, 1)
	for _, spoil := range [][]string{{"SET", s.Key(subject), "x"}, {"HSET", s.Key(subject), string(field(unlimitedCounter)), "x"}} {
		server.Must(t, "DEL", s.Key(subject))
		server.Must(t, spoil...)
		if err := s.Take(t.Context(), charge, results); !errors.Is(err, headgate.ErrUnavailable) || errors.Is(err, headgate.ErrUnanswered) {
			t.Errorf("%v: %v", spoil, err)
		}
	}
}
