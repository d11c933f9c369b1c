// Command library is an API with limits in its own process: rules from a file, which is read again when it changes, and counters in
// Redis, which all instances share.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/ruledoc"
	"github.com/headgate/headgate/storewrap"
)

func main() {
	redis := flag.String("redis", "redis://127.0.0.1:6379", "`ADDRESS` of Redis; it need not be running yet")
	rules := flag.String("rules", "rules.yaml", "`FILE` with the rules")
	listen := flag.String("listen", "127.0.0.1:8090", "`ADDRESS` of the API")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := serve(ctx, *redis, *rules, *listen)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, redis, rules, listen string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	counters, err := redisstore.Open(redis)
	if err != nil {
		return err
	}
	defer counters.Close()
	store := storewrap.New(counters, storewrap.Options{}) // adds a deadline, and local decisions while Redis is down
	defer store.Close()
	limiter, err := headgate.New(store)
	if err != nil {
		return err
	}
	watcher, err := ruledoc.Watch(ctx, ruledoc.WatchOptions{
		Paths:  []string{rules},
		Apply:  func(document *ruledoc.Document) error { return document.Apply(limiter) },
		Report: func(event ruledoc.Event) { log.Print(event) },
	})
	if err != nil {
		return err
	}
	defer func() { stop(); watcher.Wait() }()
	clients, err := identity.New(identity.Options{
		// TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, // behind a load balancer
	})
	if err != nil {
		return err
	}
	defer clients.Close()

	api := http.NewServeMux()
	api.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "hello") // the client may have left
	})
	limited := httplimit.New(limiter, httplimit.Options{Identity: clients})(api)
	server := &http.Server{Addr: listen, Handler: limited, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() {
		_ = server.Shutdown(context.WithoutCancel(ctx)) // the process ends anyway
	})
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
