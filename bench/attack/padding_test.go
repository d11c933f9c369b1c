//go:build linux

package attack

import (
	"net/netip"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// rawCodec sends bytes unchanged and ignores the response.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

var _ encoding.CodecV2 = rawCodec{}

// TestPaddedMessages sends small requests, each of another client, in messages padded with unknown fields. The server's record of
// denied clients must not keep the messages in memory.
func TestPaddedMessages(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	padding := protoField(15, make([]byte, largestMessage-200))
	for name, e := range map[string]struct {
		method string
		of     func(ip string) []byte
	}{
		"RLS": {"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", func(ip string) []byte {
			return append(protoField(1, []byte("d")), protoField(2, protoPair(1, "remote_address", ip))...)
		}},
		"Check": {"/headgate.check.v1.CheckService/Check", func(ip string) []byte { return protoPair(1, "ip", ip) }},
		"CheckBatch": {
			"/headgate.check.v1.CheckService/CheckBatch",
			func(ip string) []byte { return protoField(1, protoPair(1, "ip", ip)) },
		},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // each measures a server
			n := startServer(t, "redis: {address: \"redis://"+redis.Addr()+"\"}\nshow_subjects: clear\n", "rules: [{id: all, by: [ip], limit: 1/hour}]\n")
			conn, err := grpc.NewClient(n.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			before, _ := processMemory(t, n.PID())
			clients := size(400, 4_000)
			ip := netip.MustParseAddr("10.0.0.1")
			for range clients {
				message := append(e.of(ip.String()), padding...)
				for range 3 { // the later ones are denied
					if err := conn.Invoke(t.Context(), e.method, message, new([]byte)); err != nil {
						t.Fatal(err)
					}
				}
				ip = ip.Next()
			}
			after, peak := processMemory(t, n.PID())
			t.Logf("%d MiB before, %d MiB after %d clients with %d MiB, %d MiB at the peak", before>>20, after>>20, clients, clients, peak>>20)
			if growth := peak - before; growth > floodStreamAllowance {
				t.Errorf("memory grew by %d MiB, of at most %d", growth>>20, floodStreamAllowance>>20)
			}
		})
	}
}
