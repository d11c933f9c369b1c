package regiongrpc

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// tables are the tables of a region that never change.
type tables string

func (t tables) Tables(digest string) string {
	if digest == "same" {
		return ""
	}
	return string(t)
}

// TestPullWeights reads the weights of another region, as a member, with another config, and under another name.
func TestPullWeights(t *testing.T) {
	w := newWorld(t, "", nil)
	listener := listen(t, usHost+":0")
	server := grpc.NewServer(w.us.ServerOptions()...)
	long := tables(strings.Repeat("x", 100<<10))
	w.us.RegisterWeights(server, long)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	pull := func(digest string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return w.eu.Pullers()["us"].PullWeights(ctx, digest)
	}
	if _, err := pull(""); err == nil || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("from a server without the service: %v", err)
	}
	w.call(t, listener.Addr().String())
	if got, err := pull(""); err != nil || got != string(long) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got, err := pull("same"); err != nil || got != "" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	w.eu.options.Epoch++
	if _, err := pull(""); err == nil || !strings.Contains(err.Error(), "regions.members") {
		t.Errorf("with another config: %v", err)
	}
	w.eu.options.Epoch--
	w.eu.options.Own = "ap"
	if _, err := pull(""); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("as another member: %v", err)
	}
}
