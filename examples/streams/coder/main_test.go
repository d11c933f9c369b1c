package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

// serve starts the example with other limits of messages and returns its address.
func serve(t *testing.T, o streamlimit.Options, messages headgate.Limit) string {
	t.Helper()
	changed := []headgate.Rule{rules[0], rules[1]}
	changed[1].Limit = messages
	limiter, err := headgate.New(memstore.New(memstore.Options{}), changed...)
	testenv.NoError(t, err)
	limits, err := streamlimit.New(limiter, o)
	testenv.NoError(t, err)
	server := httptest.NewServer(&echo{limiter, limits})
	t.Cleanup(server.Close)
	return server.URL
}

func dial(t *testing.T, url, user string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), url+"/chat?user="+user, nil) //nolint:bodyclose // the library closes it
	testenv.NoError(t, err)
	t.Cleanup(func() { conn.CloseNow() }) //nolint:errcheck // the connection may have ended
	return conn
}

// exchange sends a message and reads the response.
func exchange(t *testing.T, conn *websocket.Conn, payload string) error {
	t.Helper()
	testenv.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(payload)))
	_, got, err := conn.Read(t.Context())
	if err == nil && string(got) != payload {
		t.Errorf("got %q, want %q", got, payload)
	}
	return err
}

// expectClosed fails the test unless err is a closed connection with this code and a reason that begins with this text.
func expectClosed(t *testing.T, err error, code websocket.StatusCode, reason string) {
	t.Helper()
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != code || !strings.HasPrefix(closed.Reason, reason) {
		t.Errorf("ended with %v, want %d, %q", err, code, reason)
	}
}

func TestCloseCodes(t *testing.T) {
	t.Parallel()
	url := serve(t, streamlimit.Options{OnExcess: streamlimit.Close}, headgate.PerHour(3))
	first, second := dial(t, url, "ada"), dial(t, url, "ada")
	for _, payload := range []string{"a", "", strings.Repeat("x", 10_000)} {
		testenv.NoError(t, exchange(t, first, payload))
	}
	_, _, err := dial(t, url, "ada").Read(t.Context())
	expectClosed(t, err, 1013, "too many connections: chat-connections allows 2 concurrent connections; retry in ")
	expectClosed(t, exchange(t, second, "a"), 1008, "too many messages: chat-messages allows 3/hour; retry in ")
	testenv.NoError(t, exchange(t, dial(t, url, "bob"), "a"))
}

// TestFragments tests that a message counts once, however many frames it has, and a ping counts as a message.
func TestFragments(t *testing.T) {
	t.Parallel()
	url := serve(t, streamlimit.Options{OnExcess: streamlimit.Close}, headgate.PerHour(3))
	conn := dial(t, url, "ada")
	for range 2 {
		w, err := conn.Writer(t.Context(), websocket.MessageText)
		testenv.NoError(t, err)
		for range 50 {
			_, err := w.Write([]byte("fragment")) // a frame each
			testenv.NoError(t, err)
		}
		testenv.NoError(t, w.Close())
		_, _, err = conn.Read(t.Context())
		testenv.NoError(t, err)
	}
	conn.CloseRead(t.Context())
	testenv.NoError(t, conn.Ping(t.Context()))
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := conn.Ping(short); err == nil {
		t.Error("a ping over the limit was answered")
	}
}

// TestFlood tests that a client that sends as fast as it can is slowed down to the limit. A machine that stalls slows it down further.
func TestFlood(t *testing.T) {
	testenv.Long(t)
	t.Parallel()
	const rate, burst, count = 100, 100, 600
	url := serve(t, streamlimit.Options{}, headgate.Limit{Count: rate, Window: time.Second, Burst: burst})
	conn := dial(t, url, "ada")
	var sent atomic.Int64
	go func() {
		for conn.Write(t.Context(), websocket.MessageBinary, make([]byte, 32*1024)) == nil {
			sent.Add(1)
		}
	}()
	conn.SetReadLimit(-1)
	start := time.Now()
	for range count {
		if _, _, err := conn.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := burst + rate*time.Since(start).Seconds()
	t.Logf("%d messages passed, %.1f allowed in that time, %d sent", count, want, sent.Load())
	if count > 1.02*want || count < want/4 {
		t.Errorf("%d messages passed, want %.0f", count, want)
	}
	if sent.Load() > 2*count {
		t.Errorf("%d messages sent: the client was not slowed down", sent.Load())
	}
}
