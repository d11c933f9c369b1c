// Command frameworks is an example of httplimit in routers: chi, echo, gin and fiber. It knows how each of them calls middleware of
// net/http; package httplimit does not.
package main

import (
	"cmp"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	redis, err := redisstore.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	limiter, err := headgate.New(storewrap.New(redis, storewrap.Options{}), headgate.Rule{
		ID: "by-ip", By: []string{"ip"}, Limit: headgate.PerMinute(5),
	})
	if err != nil {
		return err
	}
	limit := httplimit.New(limiter, httplimit.Options{})

	const address = "127.0.0.1:8090"
	var handler http.Handler
	switch name := append(args, "")[0]; name {
	case "chi":
		handler = newChi(limit)
	case "echo":
		handler = newEcho(limit)
	case "gin":
		handler = newGin(limit)
	case "fiber":
		return newFiber(limit).Listen(address)
	default:
		return fmt.Errorf("framework %q: must be chi, echo, gin or fiber", name)
	}
	return http.ListenAndServe(address, handler) //nolint:gosec // an example: set timeouts in a server
}
