package main

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

const callers = 64

// direct compares the services over gRPC, without Envoy.
func direct(s *paired.Suite, all *services) {
	var variants []paired.Variant
	redis := func() time.Duration { return all.redis.CPU(s) }
	for i, v := range []struct {
		name              string
		of                *bare.Service
		descriptors, keys int
	}{
		{"a   bare, no store", all.atOnce, 1, 0},
		{"b   bare, smallest script", all.bare, 1, 1},
		{"c1  envoyproxy/ratelimit, 1 descriptor", all.theirs, 1, 1},
		{"c3  envoyproxy/ratelimit, 3", all.theirs, 3, 3},
		{"d1  headgate serve, 1 descriptor", all.ours, 1, 1},
		{"d3  headgate serve, 3", all.ours, 3, 3},
	} {
		send := requests(s, bare.Dial(s, v.of.Address), v.descriptors)
		all.expectKeys(s, v.name, int64(v.keys), func() error { return send(subjects + i) })
		variants = append(variants, paired.Variant{
			Name: v.name, Callers: callers, ServerCPU: v.of.CPU, StoreCPU: redis,
			Do: func(caller, n int) error { return send(subject(caller, n)) },
		})
	}
	got := s.Measure(fmt.Sprintf("Envoy's protocol, %d callers, %d subjects; server CPU of the service, store CPU of Redis", callers, subjects),
		s.Rounds, s.Slice, variants)
	s.ExpectMin("d1 ÷ c1, throughput", got.Ratio("d1", "c1", paired.Throughput), 1.6)
	s.ExpectMax("d1 ÷ c1, server CPU per request", got.Ratio("d1", "c1", paired.ServerCPU), 0.5)
	// Throughput is not judged: with three descriptors it depends on the callers' own CPU, which is the same for both.
	s.Note("d3 ÷ c3, throughput", got.Ratio("d3", "c3", paired.Throughput))
	both := func(sample paired.Sample) float64 { return sample.ServerCPU + sample.StoreCPU }
	s.ExpectMax("d3 ÷ c3, CPU of service and Redis per request", got.Ratio("d3", "c3", both), 0.625)
	s.ExpectMin("d1 ÷ b, throughput", got.Ratio("d1", "b", paired.Throughput), 0.85)
}

// subject returns the subject of a call.
func subject(caller, n int) int { return bare.Spread(caller, n) % subjects }

// requests returns a function that sends a request, with a descriptor for the user alone, or also for the tenant and the address.
// Requests are encoded once, and only the code of a response is checked: the callers share two cores with the servers and must use
// little CPU.
func requests(s *paired.Suite, conn *grpc.ClientConn, descriptors int) func(subject int) error {
	encoded := make([][]byte, subjects+100)
	for subject := range encoded {
		id := strconv.Itoa(subject)
		all := []*descriptorv3.RateLimitDescriptor{bare.Descriptor("user", "user-"+id)}
		if descriptors > 1 {
			address := netip.AddrFrom4([4]byte{10, byte(subject >> 16), byte(subject >> 8), byte(subject)})
			all = append(all, bare.Descriptor("tenant", "tenant-"+id), bare.Descriptor("remote_address", address.String()))
		}
		var err error
		encoded[subject], err = proto.Marshal(&rlsv3.RateLimitRequest{Domain: "api", Descriptors: all})
		testenv.NoError(s, err)
	}
	return func(subject int) error {
		_, err := bare.Invoke(context.Background(), conn, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, encoded[subject], allowed)
		return err
	}
}

// allowed is the prefix of a response with overall code OK.
var allowed = []byte{1 << 3, byte(rlsv3.RateLimitResponse_OK)}
