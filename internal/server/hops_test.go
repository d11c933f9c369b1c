package server

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

var update = flag.Bool("update", false, "update the hops in docs/architecture.md")

// maxHops is the maximum number of our functions between the socket and the Redis client.
const maxHops = 20

// TestHops pauses Redis while each protocol waits for it, and reads our functions on the way from the stack.
// docs/architecture.md lists those of HTTP.
func TestHops(t *testing.T) {
	redis := testenv.Start(t, testenv.Redis)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	testenv.NoError(t, os.WriteFile(rules, []byte("rules:\n  - {id: all, by: [user], limit: 100/minute}\n"), 0o600))
	c := config.Default()
	c.Redis.Address, c.Redis.Deadline, c.Rules = "redis://"+redis.Addr(), time.Second, []string{rules}
	c.Listen.HTTP, c.Listen.GRPC, c.Listen.Ops = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	addresses := start(t, c)
	conn, err := grpc.NewClient(addresses["grpc"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	testenv.NoError(t, err)
	defer conn.Close()

	for _, protocol := range []struct {
		name, enters string
		check        func(ctx context.Context) error
	}{
		{"HTTP", "checkhttp.", func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addresses["http"]+"/v1/check",
				strings.NewReader(`{"attributes": {"user": "http"}}`))
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			return response.Body.Close()
		}},
		{"gRPC", "checkgrpc.", func(ctx context.Context) error {
			_, err := checkv1.NewCheckServiceClient(conn).Check(ctx, &checkv1.CheckRequest{Attributes: map[string]string{"user": "grpc"}})
			return err
		}},
		{"Envoy", "envoyrls.", func(ctx context.Context) error {
			_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
				Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{
					{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "envoy"}}},
				},
			})
			return err
		}},
	} {
		hops := []string(nil)
		for try := 0; hops == nil; try++ { // on a busy machine, a check may end before it is seen
			if try == 20 {
				t.Fatalf("no goroutine of %s waits for Redis", protocol.enters)
			}
			redis.Pause()
			done := make(chan error, 1)
			go func() { done <- protocol.check(t.Context()) }()
			hops = waitForHops(t, protocol.enters, done)
			redis.Resume()
			if hops != nil {
				testenv.NoError(t, <-done)
			} else {
				time.Sleep(time.Second) // until the circuit is closed again
			}
		}
		t.Logf("%s: %d hops\n%s", protocol.name, len(hops), strings.Join(hops, "\n"))
		if len(hops) > maxHops {
			t.Errorf("%s: %d hops, want at most %d", protocol.name, len(hops), maxHops)
		}
		if protocol.name == "HTTP" {
			compareHops(t, hops)
		}
	}
}

// start runs a server until the test ends.
func start(t *testing.T, c *config.Config) (addresses map[string]string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	up, done := make(chan map[string]string, 1), make(chan error, 1)
	go func() {
		done <- Run(ctx, c, Options{Version: "test", Log: slog.New(slog.DiscardHandler), Up: func(addresses map[string]string) error {
			up <- addresses
			return nil
		}})
	}()
	t.Cleanup(stop)
	select {
	case addresses = <-up:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		testenv.NoError(t, <-done)
	})
	return addresses
}

// waitForHops returns our functions on the stack of the goroutine that waits in the Redis client and contains enters,
// outermost first.
func waitForHops(t *testing.T, enters string, done <-chan error) []string {
	t.Helper()
	for {
		stacks := make([]byte, 1<<20)
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, enters) && strings.Contains(stack, "redis/rueidis.") {
				return ownFrames(t, stack)
			}
		}
		select {
		case err := <-done:
			testenv.NoError(t, err)
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}

// frame matches a function of this module and its file in a stack. A closure has the name of its enclosing function.
var frame = regexp.MustCompile(`(?m)^github\.com/headgate/headgate\S*?(\w+?)(?:\[\.\.\.\])?(?:\.func\d+)?(?:\.\d+)*\(.*\)\n\t(\S+):\d+`)

func ownFrames(t *testing.T, stack string) []string {
	t.Helper()
	root, err := filepath.Abs("../..")
	testenv.NoError(t, err)
	var hops []string
	for _, found := range frame.FindAllStringSubmatch(stack, -1) {
		file, _ := strings.CutPrefix(found[2], root+"/")
		hops = append(hops, fmt.Sprintf("`%s` in %s", found[1], file))
	}
	slices.Reverse(hops)
	return hops
}

// compareHops compares the hops with the list in docs/architecture.md, which -update writes.
func compareHops(t *testing.T, hops []string) {
	t.Helper()
	const path, begin, end = "../../docs/architecture.md", "<!-- hops -->\n", "<!-- /hops -->"
	text, err := os.ReadFile(path)
	testenv.NoError(t, err)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no %s", path, begin)
	}
	var list strings.Builder
	for i, hop := range hops {
		fmt.Fprintf(&list, "%d. %s\n", i+1, hop)
	}
	want := before + begin + list.String() + end + after
	if *update {
		testenv.NoError(t, os.WriteFile(path, []byte(want), 0o600))
	} else if string(text) != want {
		t.Errorf("docs/architecture.md is out of date: run go test ./internal/server -run TestHops -update\ngot:\n%s", list.String())
	}
}
