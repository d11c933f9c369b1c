package redisstore

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

// listen subscribes until the test ends, and returns the received messages once the subscription is active.
func listen(t *testing.T, s *Store, channel string) (received <-chan string, ended <-chan error) {
	t.Helper()
	messages, end, subscribed := make(chan string, 100), make(chan error, 1), make(chan struct{})
	go func() {
		end <- s.Subscribe(t.Context(), []string{channel}, func(on string, message []byte) {
			switch {
			case on != channel:
				t.Errorf("received on %q", on)
			case message == nil:
				close(subscribed)
			default:
				messages <- string(message)
			}
		})
	}()
	select {
	case <-subscribed:
	case err := <-end:
		t.Fatal(err)
	case <-time.After(10 * time.Second):
		t.Fatal("not subscribed after 10 s")
	}
	return messages, end
}

func expectMessage(t *testing.T, received <-chan string, want string) {
	t.Helper()
	select {
	case got := <-received:
		if got != want {
			t.Errorf("received %q, want %q", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("%q was not received within 10 s", want)
	}
}

// In a Cluster each call goes to any server, and subscribers on all servers receive the message.
func TestChannels(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) string{
		"redis":    func(t *testing.T) string { return standalone(startServer(t)) },
		"valkey":   func(t *testing.T) string { return standalone(testenv.Start(t, testenv.Valkey)) },
		"sentinel": func(t *testing.T) string { return sentinels(startSentinels(t)) },
		"cluster":  func(t *testing.T) string { return cluster(startCluster(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := start(t)
			one, other := open(t, address), open(t, address)
			here, _ := listen(t, one, "news")
			there, _ := listen(t, other, "news")
			elsewhere, _ := listen(t, one, "other news")
			for _, message := range []string{"a", "", "\x00\r\n"} {
				if err := one.Publish(t.Context(), "news", []byte(message)); err != nil {
					t.Fatal(err)
				}
				expectMessage(t, here, message)
				expectMessage(t, there, message)
			}
			if len(elsewhere) > 0 {
				t.Errorf("%q on another channel", <-elsewhere)
			}
		})
	}
}

// Namespaces and databases that share a server do not receive each other's messages.
func TestChannelsAreSeparate(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	var all []<-chan string
	var stores []*Store
	for _, o := range []Options{
		{Address: standalone(server)},
		{Address: standalone(server) + "/1"},
		{Address: standalone(server), Namespace: "other"},
	} {
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		received, _ := listen(t, s, "news")
		all, stores = append(all, received), append(stores, s)
	}
	for i, s := range stores {
		if err := s.Publish(t.Context(), "news", []byte{byte('0' + i)}); err != nil {
			t.Fatal(err)
		}
	}
	for i, received := range all {
		expectMessage(t, received, string(rune('0'+i)))
	}
	for i, received := range all {
		if len(received) > 0 {
			t.Errorf("store %d received %q", i, <-received)
		}
	}
}

func TestSubscribeEnds(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := open(t, standalone(server))
	ends := func(ended <-chan error, why string) {
		t.Helper()
		select {
		case err := <-ended:
			t.Log(err)
		case <-time.After(10 * time.Second):
			t.Errorf("still subscribed 10 s after %s", why)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Subscribe(ctx, []string{"news"}, func(string, []byte) { cancel() })
	}()
	ends(ended, "its context")

	_, broken := listen(t, s, "news")
	publish := func() error { return s.Publish(t.Context(), "news", nil) }
	if err := publish(); err != nil {
		t.Error(err)
	}
	server.Kill()
	ends(broken, "the server")
	server.Restart(t)
	if err := publish(); err != nil { // the first attempt uses the connection that died with the server
		t.Error(err)
	}
	server.Kill()
	server.Restart(t)
	listen(t, s, "news") // and so does this one
	server.Kill()
	if err := publish(); err == nil {
		t.Error("published without a server")
	}
	server.Restart(t)

	_, closed := listen(t, s, "news")
	s.Close()
	ends(closed, "the store")
}

// TestSlowSubscriberDoesNotDelayCharges checks that charges are answered while a receiver blocks, and that messages are sent
// on another connection.
func TestSlowSubscriberDoesNotDelayCharges(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := open(t, standalone(server))
	var stuck atomic.Bool
	release := make(chan struct{})
	subscribed := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Subscribe(ctx, []string{"news"}, func(_ string, message []byte) {
			if message == nil {
				close(subscribed)
				return
			}
			stuck.Store(true)
			<-release
		})
	}()
	<-subscribed
	message := bytes.Repeat([]byte("x"), 1<<20) // more than the socket buffers hold
	for range 20 {
		if err := s.Publish(t.Context(), "news", message); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); !stuck.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was received")
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err := s.Publish(t.Context(), "news", nil); err != nil {
			t.Fatal(err)
		}
		for range 100 { // on each of the client's connections, at random
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := headgate.Take(ctx, s, headgate.PerSecond(1000), "a", "b"); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		// A connection is listed with its last command; an idle one sends PING.
		if list, _ := server.Must(t, "CLIENT", "LIST").(string); strings.Contains(list, "cmd=publish") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("messages are sent on the connection of charges")
		}
	}
	close(release)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
