package redisstore

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// waitForServers waits until a store has n servers, none of them with the run ID before, and returns them.
func waitForServers(t *testing.T, s *Store, n int, before string) []Server {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		list, err := s.Servers(t.Context())
		was := false
		for _, server := range list {
			was = was || server.RunID == before
		}
		if err == nil && len(list) == n && !was {
			return list
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v; not %d servers without %s", list, err, n, before)
		}
	}
}

// runID returns the run ID that the server itself reports.
func runID(t *testing.T, s *testenv.Server) string {
	t.Helper()
	text, _ := s.Must(t, "INFO", "server").(string)
	_, rest, _ := strings.Cut(text, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	return id
}

func TestServersStandalone(t *testing.T) {
	t.Parallel()
	for _, engine := range []testenv.Engine{testenv.Redis, testenv.Valkey} {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			server := testenv.Start(t, engine)
			s := open(t, standalone(server))
			want := Server{Address: server.Addr(), RunID: runID(t, server)}
			if list := waitForServers(t, s, 1, ""); list[0] != want || want.RunID == "" {
				t.Errorf("%+v, want %+v", list, want)
			}
			server.Kill()
			if list, err := s.Servers(t.Context()); err == nil || len(list) > 0 || !strings.Contains(err.Error(), server.Addr()) {
				t.Errorf("%+v, %v of a dead server", list, err)
			}
			server.Restart(t)
			waitForServers(t, s, 1, want.RunID)
		})
	}
}

func TestServersBehindSentinel(t *testing.T) {
	t.Parallel()
	set := startSentinels(t)
	s := open(t, sentinels(set))
	before := waitForServers(t, s, 1, "")[0]
	if primary := set.Primary(t); before.RunID != runID(t, primary) {
		t.Fatalf("%+v, want %s", before, primary.Addr())
	}
	set.Failover(t)
	after := waitForServers(t, s, 1, before.RunID)[0]
	if primary := set.Primary(t); after.RunID != runID(t, primary) || after.Address != primary.Addr() {
		t.Errorf("%+v, want %s", after, primary.Addr())
	}
}

func TestServersOfCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--cluster-require-full-coverage", "no")
	s := open(t, cluster(c))
	runIDs := map[string]string{}
	for _, p := range c.Primaries(t) {
		runIDs[p.Addr()] = runID(t, p)
	}
	for _, server := range waitForServers(t, s, 3, "") {
		if runIDs[server.Address] != server.RunID {
			t.Errorf("%+v is none of %v", server, runIDs)
		}
	}
	victim := c.PrimaryOf(t, 0)
	killed := runIDs[victim.Addr()]
	victim.Kill()
	if list, err := s.Servers(t.Context()); err == nil || len(list) != 2 || !strings.Contains(err.Error(), victim.Addr()) {
		t.Errorf("%+v, %v with one of three dead", list, err)
	}
	promoted := runID(t, c.PrimaryOf(t, 0))
	found := false
	for _, server := range waitForServers(t, s, 3, killed) {
		found = found || server.RunID == promoted
	}
	if !found {
		t.Error("the promoted replica is missing")
	}
}

func TestServersCountEvictions(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru")
	s := open(t, standalone(server))
	evicted := func() int64 { return waitForServers(t, s, 1, "")[0].EvictedKeys }
	if n := evicted(); n != 0 {
		t.Fatalf("%d keys evicted from an empty server", n)
	}
	for i := 0; evicted() == 0; i++ {
		if i == 100 {
			t.Fatal("nothing evicted")
		}
		for j := range 500 {
			if _, err := headgate.Take(t.Context(), s, headgate.PerHour(10), "a", strconv.Itoa(500*i+j)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
