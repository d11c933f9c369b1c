// Command llm is an example of a budget for language models: a reverse proxy for chat completions that gives each tenant a monthly
// budget in money. It reserves the cost of a call before it forwards it, extends the reservation while the model streams, and stops
// the stream where the budget ends. It knows tenants, prices and the OpenAI API; Headgate knows rules and counters.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/llmcost"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/ruledoc"
	"github.com/headgate/headgate/storewrap"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "llm:", err)
		os.Exit(1) //nolint:gocritic // exitAfterDefer: the process ends, and with it the signal handler
	}
}

// run runs the proxy until ctx is done and all calls have ended.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("llm", flag.ContinueOnError)
	flags.SetOutput(out)
	listen := flags.String("listen", "127.0.0.1:8090", "address for clients")
	upstream := flags.String("upstream", "http://127.0.0.1:9000", "model server; its API key is read from UPSTREAM_API_KEY")
	redis := flags.String("redis", "redis://127.0.0.1:6379", "Redis with the counters, unless -headgate is set")
	rules := flags.String("rules", "examples/llm/rules.yaml", "rules, unless -headgate is set")
	service := flags.String("headgate", "", "comma-separated gRPC addresses of a Headgate service, which has the rules and the counters")
	timeout := flags.Duration("timeout", time.Second, "how long a call waits for Redis or the service; much shorter than a model takes")
	priceFile := flags.String("prices", "examples/llm/prices.yaml", "price table")
	keyFile := flags.String("keys", "examples/llm/keys.txt", "API keys and their tenants")
	if err := flags.Parse(args); err != nil {
		return err
	}

	p := &proxy{log: slog.New(slog.NewTextHandler(out, nil)), upstreamKey: os.Getenv("UPSTREAM_API_KEY")}
	var err error
	if p.upstream, err = url.Parse(*upstream); err != nil || p.upstream.Host == "" {
		return fmt.Errorf("upstream %q: must be a URL such as http://127.0.0.1:9000", *upstream)
	}
	if p.prices, err = llmcost.Load(*priceFile); err != nil {
		return err
	}
	if p.tenants, err = loadTenants(*keyFile); err != nil {
		return err
	}
	if p.identity, err = identity.New(identity.Options{APIKey: identity.APIKey{Header: "Authorization"}}); err != nil {
		return err
	}
	defer p.identity.Close()
	var stop func()
	if *service != "" {
		p.budget, stop, err = useService(strings.Split(*service, ","), *timeout)
	} else {
		p.budget, stop, err = useRedis(ctx, *redis, *rules, *timeout)
	}
	if err != nil {
		return err
	}
	defer stop()

	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	p.log.InfoContext(ctx, "listening", "address", listener.Addr().String())
	defer context.AfterFunc(ctx, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return server.Shutdown(context.WithoutCancel(ctx)) // waits until all streams have ended
}

// useRedis decides in this process, with counters in Redis.
func useRedis(ctx context.Context, address, rules string, timeout time.Duration) (b budget, stop func(), err error) {
	redis, err := redisstore.Open(address)
	if err != nil {
		return nil, nil, err
	}
	store := storewrap.New(redis, storewrap.Options{Deadline: timeout})
	stop = func() {
		store.Close()
		redis.Close()
	}
	limiter, err := headgate.New(store)
	if err == nil {
		_, err = ruledoc.Watch(ctx, ruledoc.WatchOptions{
			Paths: []string{rules},
			Apply: func(document *ruledoc.Document) error { return document.Apply(limiter) },
		})
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return limiter, stop, nil
}

// useService lets a Headgate service decide.
func useService(addresses []string, timeout time.Duration) (b budget, stop func(), err error) {
	c, err := client.New(client.Options{
		Addresses: addresses, Token: os.Getenv("HEADGATE_TOKEN"), Timeout: timeout, OnFailure: headgate.FailDeny,
	})
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}

// loadTenants reads a file with a tenant and an API key, or its hash, on each line. It returns the tenants by the hash of their key.
func loadTenants(name string) (map[string]string, error) {
	data, err := os.ReadFile(name) //nolint:gosec // G304: the operator chooses the file
	if err != nil {
		return nil, err
	}
	tenants := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch len(fields) {
		case 0:
		case 2:
			hash, err := headgate.ParseKeyHash(fields[1])
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
			}
			tenants[hash] = fields[0]
		default:
			return nil, fmt.Errorf("%s:%d: must be a tenant and an API key", name, i+1)
		}
	}
	return tenants, nil
}
