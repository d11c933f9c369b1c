package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/suite"
)

const (
	probeEvery   = 5 * time.Millisecond
	probeTimeout = 100 * time.Millisecond
)

// probe finds out when the store accepts writes, independently of the nodes: it continuously writes its own key.
type probe struct {
	key       string
	addresses []string // of all servers that may hold the key; one of them must accept it

	mu      sync.Mutex
	failing time.Time // start of the current outage; zero if there is none
	outages []outage
}

// outage is a period without writes.
type outage struct{ from, to time.Time }

// watch probes until ctx ends.
func (p *probe) watch(ctx context.Context) {
	conns := map[string]net.Conn{}
	for ctx.Err() == nil {
		started := time.Now()
		p.note(started, p.write(ctx, conns))
		suite.SleepUntil(ctx, started.Add(probeEvery))
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
}

func (p *probe) note(started time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !ok && p.failing.IsZero():
		p.failing = started
	case ok && !p.failing.IsZero():
		// Shorter outages may be caused by this machine.
		if o := (outage{p.failing, time.Now()}); o.to.Sub(o.from) >= probeTimeout {
			p.outages = append(p.outages, o)
		}
		p.failing = time.Time{}
	}
}

func (p *probe) write(ctx context.Context, conns map[string]net.Conn) bool {
	dialer := net.Dialer{Timeout: probeTimeout}
	for _, address := range p.addresses {
		conn := conns[address]
		if conn == nil {
			var err error
			if conn, err = dialer.DialContext(ctx, "tcp", address); err != nil {
				continue
			}
			conns[address] = conn
		}
		reply := make([]byte, 256)
		_ = conn.SetDeadline(time.Now().Add(probeTimeout))
		_, err := fmt.Fprintf(conn, "SET %s 1 PX 10000\r\n", p.key)
		if err == nil {
			_, err = conn.Read(reply)
		}
		if err != nil {
			_ = conn.Close()
			delete(conns, address)
			continue
		}
		if strings.HasPrefix(string(reply), "+OK") {
			return true
		}
	}
	return false
}

// restored returns when the last outage after a time ended; zero if there was none. It returns false during an outage.
func (p *probe) restored(after time.Time) (t time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.outages {
		if o.to.After(after) {
			t = o.to
		}
	}
	return t, p.failing.IsZero()
}
