// Command api is the application of the demo: it answers requests that have an API key. It knows nothing of rate limits; Envoy asks
// Headgate before a request gets here.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "address to listen on")
	flag.Parse()
	server := http.Server{Addr: *listen, Handler: http.HandlerFunc(search), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func search(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("X-API-Key") == "":
		http.Error(w, "the header X-API-Key is missing", http.StatusUnauthorized)
	case r.URL.Path != "/search":
		http.NotFound(w, r)
	default:
		_, _ = fmt.Fprintln(w, `{"results": ["a cat", "another cat"]}`) // an error means that the client disconnected
	}
}
