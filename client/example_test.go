package client_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/memstore"
)

// startService starts a service that would otherwise run on another machine.
func startService() (address string, stop func()) {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "login", Match: headgate.Match{Path: "/login"}, By: []string{"ip"}, Limit: headgate.PerMinute(2),
	}, headgate.Rule{
		ID: "exports", Match: headgate.Match{Path: "/exports"}, By: []string{"tenant"}, Limit: headgate.Concurrent(1),
	})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()))
	checkgrpc.New(limiter, checkgrpc.Options{}).Register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	return listener.Addr().String(), func() {
		server.Stop()
		<-done
	}
}

func ExampleClient_Begin() {
	address, stop := startService()
	defer stop()

	limiter, err := client.New(client.Options{Addresses: []string{address}, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	export := headgate.Request{Attributes: headgate.Attributes{"path": "/exports", "tenant": "acme"}}

	first, _ := limiter.Begin(context.Background(), export)
	defer first.Done(headgate.Outcome{}) // when the export has ended
	second, _ := limiter.Begin(context.Background(), export)
	fmt.Println(first.Allowed, second.Allowed)
	// Output:
	// true false
}

func Example() {
	address, stop := startService()
	defer stop()

	limiter, err := client.New(client.Options{Addresses: []string{address}, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	h := httplimit.New(limiter, httplimit.Options{})(http.NotFoundHandler())

	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/login", http.NoBody))
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 404 "login";r=1;t=30
	// 404 "login";r=0;t=60
	// 429 "login";r=0;t=30
}
