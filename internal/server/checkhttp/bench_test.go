package checkhttp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// BenchmarkCheck measures a check over a connection, compared with a handler that reads the request and writes a fixed
// response; and the handler alone.
func BenchmarkCheck(b *testing.B) {
	const body = `{"attributes":{"ip":"192.0.2.1","method":"POST","path":"/login","user_agent":"example/1.0"}}`
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "login-by-ip", By: []string{"ip"}, Limit: headgate.PerSecond(headgate.MaxCost),
	})
	if err != nil {
		b.Fatal(err)
	}
	checks := newTest(b, limiter, Options{})
	response := serve(checks, post("/v1/check", body)).Body.Bytes()
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(response)
	})
	for _, bench := range []struct {
		name string
		h    http.Handler
	}{{"bare", bare}, {"check", checks}} {
		b.Run("connection/"+bench.name, func(b *testing.B) {
			server := httptest.NewServer(bench.h)
			defer server.Close()
			for b.Loop() {
				response, err := server.Client().Post(server.URL+"/v1/check", "application/json", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		})
	}
	b.Run("handler", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			serve(checks, post("/v1/check", body))
		}
	})
}
