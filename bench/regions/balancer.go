package main

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// balancer is a load balancer in front of the servers of a region: other regions connect to it.
type balancer struct {
	place   *testenv.Place
	targets []string
	turn    atomic.Uint32
}

// serve forwards connections until the listener is closed.
func (b *balancer) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go b.forward(conn)
	}
}

// forward connects to the next server that accepts connections, and copies in both directions until one side closes.
func (b *balancer) forward(from net.Conn) {
	defer func() { _ = from.Close() }()
	for range b.targets {
		target := b.targets[int(b.turn.Add(1))%len(b.targets)]
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		to, err := b.place.Dial(ctx, "tcp", target)
		cancel()
		if err != nil {
			continue
		}
		var both sync.WaitGroup
		copyAll := func(to, from net.Conn) {
			_, _ = io.Copy(to, from)
			_, _ = to.Close(), from.Close()
		}
		both.Go(func() { copyAll(to, from) })
		copyAll(from, to)
		both.Wait()
		return
	}
}
