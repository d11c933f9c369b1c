package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

// page opens connections one after another and reports how each ended. The first two stay open.
const page = `<!doctype html><script>
const report = text => fetch("/report", {method: "POST", body: text});
const open = (path, use) => new Promise(done => {
	const socket = new WebSocket("ws://" + location.host + path);
	socket.onopen = () => { if (use) use(socket, done) };
	socket.onclose = e => { report(path + ": " + e.code + " " + e.reason); done() };
});
const keep = (socket, done) => done();
const talk = socket => { for (let i = 0; i < 5; i++) socket.send("hello") };
(async () => {
	await open("/chat?user=ada", keep);
	await open("/chat?user=ada", keep);
	await open("/chat?user=ada");
	await open("/chat?user=bob", talk);
	await open("/denied");
})();
</script>`

// TestBrowser tests what a browser sees: the code and the reason of a connection that was accepted and closed, and neither of them if
// the upgrade was denied with 429.
func TestBrowser(t *testing.T) {
	t.Parallel()
	changed := []headgate.Rule{rules[0], rules[1]}
	changed[1].Limit = headgate.PerHour(3)
	limiter, err := headgate.New(memstore.New(memstore.Options{}), changed...)
	testenv.NoError(t, err)
	limits, err := streamlimit.New(limiter, streamlimit.Options{})
	testenv.NoError(t, err)
	reports := make(chan string, 10)
	mux := http.NewServeMux()
	mux.Handle("/chat", &echo{limiter, limits})
	mux.HandleFunc("/denied", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
	mux.HandleFunc("/report", func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		reports <- string(body)
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if _, err := io.WriteString(w, page); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.CloseClientConnections)
	testenv.Browse(t, server.URL)

	for _, want := range []string{
		"/chat?user=ada: 1013 too many connections: chat-connections allows 2 concurrent connections; retry in ",
		"/chat?user=bob: 1008 too many messages: chat-messages allows 3/hour; retry in ",
		"/denied: 1006 ",
	} {
		select {
		case got := <-reports:
			if !strings.HasPrefix(got, want) {
				t.Errorf("the browser reports %q, want %q", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the browser does not report %q", want)
		}
	}
}
