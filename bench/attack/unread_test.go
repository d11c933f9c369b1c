//go:build linux

package attack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/bench/internal/fleet"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// unreadGrowth is how much a server may grow in 2,000 calls, in addition to four times the bytes sent: the memory of the calls, twice
// because of the garbage collector, and 64 MiB of uncollected garbage.
const unreadGrowth = 320 << 20

// otherAddress is the address of a client other than the attacker.
const otherAddress = "127.0.0.2"

// dialFrom returns a dialer for connections from an address of this machine.
func dialFrom(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}
}

// TestUnreadResponses requests as many responses as small messages can, in thousands of calls, and reads none of them. The server
// must not keep all of them in memory, and must serve callers from other addresses.
func TestUnreadResponses(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	for name, e := range map[string]struct {
		floodTarget
		items int
	}{
		"streams": {floodTarget{path: "/headgate.check.v1.CheckService/CheckStream", streams: true}, 16_384},
		"batches": {floodTarget{path: "/headgate.check.v1.CheckService/CheckBatch"}, 1_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := startServer(t, "redis: {address: \"redis://"+redis.Addr()+"\"}\n", "rules: [{id: all, by: [ip], limit: 1000000/hour}]\n")
			before, _ := processMemory(t, n.PID())
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(size(3, 25))*time.Second)
			defer cancel()
			e.grpc = true
			f := flood{
				floodTarget: e.floodTarget, node: n, calls: 2_000, connections: 20, hold: true,
				body: bytes.Repeat(protoField(1, nil), e.items),
			}
			var attack sync.WaitGroup
			for range f.connections {
				client := f.client()
				t.Cleanup(client.CloseIdleConnections)
				for range f.calls / f.connections {
					attack.Go(func() { f.call(ctx, client) })
				}
			}
			responses, err := checkFromOtherAddress(ctx, n.GRPC)
			attack.Wait()
			_, peak := processMemory(t, n.PID())
			t.Logf("%d MiB before, %d MiB at the peak; %d MiB sent in calls of %d kB; %d other checks; replies %v",
				before>>20, peak>>20, f.sent.Load()>>20, len(f.body)>>10, responses, f.sampleReplies())
			if maxGrowth := unreadGrowth + 4*f.sent.Load(); peak-before > maxGrowth {
				t.Errorf("memory grew by %d MiB, of at most %d", (peak-before)>>20, maxGrowth>>20)
			}
			if responses == 0 || err != nil {
				t.Errorf("another caller got %d responses: %v", responses, err)
			}
		})
	}
}

// checkFromOtherAddress sends sequential checks in a stream from another address, until ctx ends and there was a response.
func checkFromOtherAddress(ctx context.Context, address string) (responses int, err error) {
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return dialFrom(otherAddress).DialContext(ctx, "tcp", to)
		}))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stream, err := checkv1.NewCheckServiceClient(conn).CheckStream(patient)
	for err == nil && (responses == 0 || ctx.Err() == nil) {
		err = stream.Send(&checkv1.CheckStreamRequest{Checks: []*checkv1.StreamCheck{
			{Id: 1, Request: &checkv1.CheckRequest{Attributes: map[string]string{"ip": "192.0.2.9"}}},
		}})
		for got := 0; err == nil && got == 0; {
			var message *checkv1.CheckStreamResponse
			if message, err = stream.Recv(); err == nil {
				got = len(message.GetAnswers())
				responses += got
			}
		}
	}
	return responses, err
}

// TestConnectionsPerAddress opens more connections from one address than it may have. Other addresses must be able to connect.
func TestConnectionsPerAddress(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	n := startServer(t, "redis: {address: \"redis://"+redis.Addr()+"\"}\n", "rules: [{id: all, by: [ip], limit: 1000000/hour}]\n")
	const attempted, maxOpen = 5_500, 5_000
	opened := make([]net.Conn, attempted)
	defer func() {
		for _, c := range opened {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	var opening sync.WaitGroup
	for part := range 8 {
		opening.Go(func() {
			for i := part; i < attempted; i += 8 {
				opened[i], _ = dialFrom("127.0.0.1").DialContext(t.Context(), "tcp", n.HTTP) // it may be rejected
			}
		})
	}
	opening.Wait()
	err := requestFromOtherAddress(t.Context(), n.HTTP)
	open := connectionsOf(t, n)
	t.Logf("%d connections attempted from one address, %d open", attempted, open)
	if open > maxOpen+10 || err != nil {
		t.Errorf("one address has %d of 10000 connections; a request from another: %v", open, err)
	}
}

// connectionsOf returns the number of open HTTP connections, from the server's metrics.
func connectionsOf(t *testing.T, n *fleet.Node) (open int) {
	t.Helper()
	text, err := n.Fetch(t.Context(), http.MethodGet, n.Ops, "/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, `headgate_connections{listener="http"} `); ok {
			open, err = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// requestFromOtherAddress sends a check over HTTP from another address.
func requestFromOtherAddress(ctx context.Context, address string) error {
	client := &http.Client{Transport: &http.Transport{DialContext: dialFrom(otherAddress).DialContext, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/check",
		strings.NewReader(`{"attributes": {"ip": "192.0.2.9"}}`))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s, %w", response.Status, err)
	}
	return nil
}
