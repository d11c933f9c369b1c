package attack

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

// long reports whether to run the long form of the attacks, as "make attack" does.
func long() bool { return os.Getenv("HEADGATE_ATTACK") == "long" }

// size returns few in the short form and many in the long one.
func size(few, many int) int {
	if long() {
		return many
	}
	return few
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// startRedis starts a Redis for the test.
func startRedis(t *testing.T) *testenv.Server {
	t.Helper()
	return testenv.Start(t, testenv.Redis)
}

// openStore connects to a Redis as the README does, with the default options.
func openStore(t *testing.T, redis *testenv.Server) *storewrap.Store {
	t.Helper()
	return wrap(t, redis, storewrap.Options{Log: quiet()})
}

// longDeadlineStore opens a store for tests that count exactly: a busy machine must not look like an outage of Redis.
func longDeadlineStore(t *testing.T, redis *testenv.Server) *storewrap.Store {
	t.Helper()
	return wrap(t, redis, storewrap.Options{Log: quiet(), Deadline: 5 * time.Second})
}

func wrap(t *testing.T, redis *testenv.Server, o storewrap.Options) *storewrap.Store {
	t.Helper()
	store := storewrap.New(openRedis(t, redis), o)
	t.Cleanup(store.Close)
	return store
}

// openRedis connects to a Redis without storewrap.
func openRedis(t *testing.T, redis *testenv.Server) *redisstore.Store {
	t.Helper()
	inner := fleet.Open(t, "redis://"+redis.Addr())
	testenv.NoError(t, inner.Ready(t.Context()))
	return inner
}

// newLimiter returns a limiter with the default options.
func newLimiter(t *testing.T, store headgate.Store, rules ...headgate.Rule) *headgate.Limiter {
	t.Helper()
	l, err := headgate.New(store, rules...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// program is the headgate binary, built once for all tests.
var program struct {
	sync.Once
	dir, path string
}

// headgateProgram returns the path of the headgate binary.
func headgateProgram(t *testing.T) string {
	t.Helper()
	testenv.Long(t) // before Do: a skipped test must not count as the one that built it
	program.Do(func() {
		built := testenv.BuildHeadgate(t)
		var err error
		if program.dir, err = os.MkdirTemp("", "attack"); err != nil { //nolint:usetesting // it outlives the first test
			t.Fatal(err)
		}
		program.path = filepath.Join(program.dir, "headgate")
		if err := os.Rename(built, program.path); err != nil {
			t.Fatal(err)
		}
	})
	return program.path
}

// startServer runs headgate serve with a rule document. config is the config without its listen and rules sections.
func startServer(t *testing.T, config, rules string) *fleet.Node {
	t.Helper()
	return fleet.Start(t, headgateProgram(t), config, rules)
}

// startServerWith does the same with more files in the config's directory.
func startServerWith(t *testing.T, config, rules string, files map[string]string) *fleet.Node {
	t.Helper()
	n := fleet.New(t, headgateProgram(t), "rules: rules.yaml\n"+config, files)
	n.Write("rules.yaml", rules)
	n.Start()
	return n
}

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(program.dir)
	os.Exit(code)
}

// loopback has the addresses of this machine.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
