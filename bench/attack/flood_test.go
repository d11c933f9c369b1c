//go:build linux

package attack

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/fleet"
)

// Bounds on the memory of a server under attack. It may hold twice what it was sent: as received, and reassembled or decoded. The
// garbage collector lets the heap grow to twice that. The allowance is for connections and goroutines. Streams and batches may also
// have 4,096 checks of 25 kB in flight, which the collector doubles as well.
const (
	floodHoldings        = 4
	floodAllowance       = 96 << 20
	floodStreamAllowance = 256 << 20
)

// streamMessages is the number of messages sent in each stream.
const streamMessages = 4

// floodTarget is an endpoint that receives and decodes requests.
type floodTarget struct {
	grpc bool
	path string
	// streams means that a call has several messages.
	streams bool
	// concurrent means that it has thousands of checks in flight.
	concurrent bool
	// single means that a message is one request. In the short form only tinyAttributes is tried for these.
	single bool
	shapes map[string][]byte
}

// TestFlood sends the largest messages that are accepted, filled with as many items, attributes or levels as fit, over several
// connections with many calls each, and reads no response. Memory must grow in proportion to the bytes sent, and other clients
// must be served during the attack.
func TestFlood(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	for name, e := range floodTargets() {
		for shape, body := range e.shapes {
			if e.single && shape != tinyAttributes && !long() {
				continue
			}
			t.Run(name+"/"+shape, func(t *testing.T) { //nolint:paralleltest // each measures a server, and together they would take all memory
				n := startServer(t, "redis: {address: \"redis://"+redis.Addr()+"\"}\n", "rules: [{id: all, by: [ip], limit: 1000000/hour}]\n")
				f := flood{
					floodTarget: e, node: n, body: body, gzip: shape == gzipBomb, connections: size(4, 8), calls: size(16, 64), rounds: size(1, 4),
				}
				if e.streams {
					f.rounds = 1 // a call sends more messages instead
				}
				f.run(t)
			})
		}
	}
}

// flood is one attack on one server.
type flood struct {
	floodTarget
	node                       *fleet.Node
	body                       []byte
	gzip                       bool
	connections, calls, rounds int
	// hold means that calls stay open, with their responses unread.
	hold    bool
	sent    atomic.Int64
	replies sync.Map // of string: status and message
}

func (f *flood) run(t *testing.T) {
	t.Helper()
	before, _ := processMemory(t, f.node.PID())
	ctx, cancel := context.WithCancel(t.Context())
	var attack, others sync.WaitGroup
	defer others.Wait()
	defer attack.Wait()
	defer cancel()
	var checked, failed atomic.Int64
	others.Go(func() {
		for first := true; first || ctx.Err() == nil; first = false {
			_, err := f.node.Fetch(t.Context(), http.MethodPost, f.node.HTTP, "/v1/check", `{"attributes": {"ip": "192.0.2.9"}}`)
			if checked.Add(1); err != nil {
				failed.Add(1)
				t.Log(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	for range f.connections {
		client := f.client()
		t.Cleanup(client.CloseIdleConnections)
		for range f.calls / f.connections {
			attack.Go(func() {
				for range f.rounds {
					f.call(ctx, client)
				}
			})
		}
	}
	f.settle(ctx, &attack)
	after, peak := processMemory(t, f.node.PID())
	cancel()
	others.Wait()
	sent := f.sent.Load()
	maxGrowth := floodHoldings*min(sent, int64(f.calls*len(f.body))) + floodAllowance
	if f.concurrent {
		maxGrowth += floodStreamAllowance - floodAllowance
	}
	t.Logf("%d MiB before, %d MiB at the peak, %d MiB after; %d MiB sent in calls of %d kB; %d other checks; replies %v",
		before>>20, peak>>20, after>>20, sent>>20, len(f.body)>>10, checked.Load(), f.sampleReplies())
	if peak-before > maxGrowth {
		t.Errorf("memory grew by %d MiB, of at most %d", (peak-before)>>20, maxGrowth>>20)
	}
	if checked.Load() == 0 || failed.Load() > 0 {
		t.Errorf("of %d checks of another client %d failed", checked.Load(), failed.Load())
	}
}

// settle waits until the flood is over, or the server accepts no more bytes.
func (f *flood) settle(ctx context.Context, attack *sync.WaitGroup) {
	over := make(chan struct{})
	go func() {
		attack.Wait()
		close(over)
	}()
	for last := int64(-1); f.sent.Load() != last || !f.streams; {
		last = f.sent.Load()
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// client returns a client with a minimal receive window, so that responses stay in the server.
func (f *flood) client() *http.Client {
	transport := &http.Transport{
		HTTP2:           &http.HTTP2Config{MaxReceiveBufferPerStream: 1},
		Protocols:       &http.Protocols{},
		MaxConnsPerHost: f.calls,
	}
	transport.Protocols.SetUnencryptedHTTP2(f.grpc)
	transport.Protocols.SetHTTP1(!f.grpc)
	return &http.Client{Transport: transport}
}

// call sends the body once, or several times in a stream, and does not read the response.
func (f *flood) call(ctx context.Context, client *http.Client) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	address, kind, body := f.node.HTTP, "application/json", io.Reader(&countedReader{bytes.NewReader(f.body), &f.sent})
	if f.grpc {
		address, kind = f.node.GRPC, "application/grpc"
		body = io.MultiReader(f.message(), body)
		if f.streams {
			for range streamMessages - 1 {
				body = io.MultiReader(body, f.message(), &countedReader{bytes.NewReader(f.body), &f.sent})
			}
			body = io.MultiReader(body, stalledReader{ctx})
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+f.path, body)
	if err != nil {
		panic(err) // the address is a URL
	}
	request.Header.Set("Content-Type", kind)
	request.Header.Set("Te", "trailers")
	switch {
	case f.gzip && f.grpc:
		request.Header.Set("Grpc-Encoding", "gzip")
	case f.gzip:
		request.Header.Set("Content-Encoding", "gzip")
	}
	response, err := client.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			f.replies.Store(fmt.Sprintf("%.150s", err), true)
		}
		return
	}
	f.replies.Store(strings.TrimSpace(strconv.Itoa(response.StatusCode)+" "+response.Header.Get("Grpc-Status")+" "+
		response.Header.Get("Grpc-Message")), true)
	if f.streams || f.hold {
		<-ctx.Done()
	}
	_ = response.Body.Close()
}

// message returns the five-byte prefix of a gRPC message.
func (f *flood) message() io.Reader {
	flags := byte(0)
	if f.gzip {
		flags = 1
	}
	return bytes.NewReader(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(f.body))))
}

func (f *flood) sampleReplies() []string {
	var all []string
	f.replies.Range(func(text, _ any) bool {
		all = append(all, text.(string))
		return len(all) < 5
	})
	return all
}

// countedReader counts the bytes read.
type countedReader struct {
	io.Reader
	n *atomic.Int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// stalledReader blocks until ctx ends.
type stalledReader struct{ ctx context.Context } //nolint:containedctx // of one request

func (s stalledReader) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, io.EOF
}

// processMemory returns the resident memory of a process, and its peak.
func processMemory(t *testing.T, pid int) (now, peak int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		kb, _ := strconv.ParseInt(words[1], 10, 64)
		switch words[0] {
		case "VmRSS:":
			now = kb << 10
		case "VmHWM:":
			peak = kb << 10
		}
	}
	return now, peak
}
