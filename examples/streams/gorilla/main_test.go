package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

func dial(t *testing.T, o streamlimit.Options, bytes headgate.Limit) *websocket.Conn {
	t.Helper()
	rule := bytesOfUsers
	rule.Limit = bytes
	limiter, err := headgate.New(memstore.New(memstore.Options{}), rule)
	testenv.NoError(t, err)
	limits, err := streamlimit.New(limiter, o)
	testenv.NoError(t, err)
	server := httptest.NewServer(echo(limits))
	t.Cleanup(server.Close)
	url := "ws" + strings.TrimPrefix(server.URL, "http") + "/chat?user=ada"
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), url, nil) //nolint:bodyclose // the library closes it
	testenv.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestDrop tests that messages in excess are dropped, that the client gets the wait, and that the connection stays open.
func TestDrop(t *testing.T) {
	t.Parallel()
	conn := dial(t, streamlimit.Options{OnExcess: streamlimit.Drop}, headgate.PerHour(100))
	for i, size := range []int{60, 60, 40, 1, 0} {
		testenv.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(strings.Repeat("x", size))))
		_, got, err := conn.ReadMessage()
		testenv.NoError(t, err)
		dropped := strings.HasPrefix(string(got), `{"error":"too many messages","retry_after_ms":`)
		if want := i == 1 || i > 2; dropped != want || !want && len(got) != size {
			t.Errorf("message %d: %q; dropped: %t, want %t", i, got, dropped, want)
		}
	}
}

// TestClose tests that the code and the reason reach the client.
func TestClose(t *testing.T) {
	t.Parallel()
	conn := dial(t, streamlimit.Options{OnExcess: streamlimit.Close, Connection: headgate.PerHour(3)}, headgate.PerHour(100))
	passed := 0
	for range 5 {
		testenv.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte("a")))
	}
	for {
		_, _, err := conn.ReadMessage()
		if err == nil {
			passed++
			continue
		}
		if closed, ok := err.(*websocket.CloseError); !ok || closed.Code != 1008 || closed.Text != "too many messages on this connection" { //nolint:errorlint // not wrapped
			t.Errorf("ended with %v", err)
		}
		break
	}
	if passed != 3 {
		t.Errorf("%d messages passed, want 3", passed)
	}
}
