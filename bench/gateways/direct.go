package main

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
)

const callers = 64

// direct compares the services by their protocol alone.
func direct(scope *paired.Scope, all *services, aims *paired.Aims, rounds int, slice time.Duration) (func(), error) {
	var variants []paired.Variant
	redis := func() time.Duration { return all.redis.CPU(scope) }
	for i, v := range []struct {
		name              string
		of                service
		descriptors, keys int
	}{
		{"a   bare, answers at once", all.atOnce, 1, 0},
		{"b   bare, smallest script", all.bare, 1, 1},
		{"c1  envoyproxy/ratelimit, 1 descriptor", all.theirs, 1, 1},
		{"c3  envoyproxy/ratelimit, 3", all.theirs, 3, 3},
		{"d1  headgate serve, 1 descriptor", all.ours, 1, 1},
		{"d3  headgate serve, 3", all.ours, 3, 3},
	} {
		conn, err := grpc.NewClient(v.of.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		scope.Cleanup(func() { _ = conn.Close() })
		ask, err := asks(conn, v.descriptors)
		if err != nil {
			return nil, err
		}
		if err := all.counted(scope, int64(v.keys), func() error { return ask(subjects + i) }); err != nil {
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
		variants = append(variants, paired.Variant{
			Name: v.name, Callers: callers, ServerCPU: v.of.CPU, StoreCPU: redis,
			Do: func(caller, n int) error { return ask(subject(caller, n)) },
		})
	}
	s, err := paired.Run(variants, rounds, slice)
	if err != nil {
		return nil, err
	}
	fmt.Printf("Envoy's protocol, %d callers, %d subjects, %d rounds of %s; server is the service alone, store is Redis\n",
		callers, subjects, rounds, slice)
	paired.Table(variants, s)
	of := func(i int) []paired.Sample { return s[variants[i].Name] }
	return func() {
		aims.AtLeast("d1 ÷ c1, throughput", paired.Ratio(of(4), of(2), paired.Throughput), 1.6)
		aims.AtMost("d1 ÷ c1, server CPU per request", paired.Ratio(of(4), of(2), paired.ServerCPU), 0.5)
		// Throughput is printed only: with three descriptors it depends on the callers' own CPU, which is the same for both.
		paired.Print("d3 ÷ c3, throughput", paired.Ratio(of(5), of(3), paired.Throughput))
		aims.AtMost("d3 ÷ c3, CPU of service and Redis per request", paired.Ratio(of(5), of(3), paired.ServerAndStoreCPU), 0.625)
		aims.AtLeast("d1 ÷ b, throughput", paired.Ratio(of(4), of(1), paired.Throughput), 0.85)
	}, nil
}

// subject is who asks.
func subject(caller, n int) int { return bare.Spread(caller, n) % subjects }

// asks makes requests: by the user alone, or by the tenant and the address as well. They are written once, and of the answers only
// the code is read: the callers have the same two cores as the servers, and are not what is measured.
func asks(conn *grpc.ClientConn, descriptors int) (func(subject int) error, error) {
	written := make([][]byte, subjects+100)
	for subject := range written {
		id := strconv.Itoa(subject)
		all := []*descriptorv3.RateLimitDescriptor{by("user", "user-"+id)}
		if descriptors > 1 {
			address := netip.AddrFrom4([4]byte{10, byte(subject >> 16), byte(subject >> 8), byte(subject)})
			all = append(all, by("tenant", "tenant-"+id), by("remote_address", address.String()))
		}
		var err error
		if written[subject], err = proto.Marshal(&rlsv3.RateLimitRequest{Domain: "api", Descriptors: all}); err != nil {
			return nil, err
		}
	}
	return func(subject int) error {
		answer, err := bare.Invoke(context.Background(), conn, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, written[subject])
		if err == nil && !bytes.HasPrefix(answer, allowed) {
			err = fmt.Errorf("the answer to %d descriptors is %q", descriptors, answer)
		}
		return err
	}, nil
}

// allowed is how an answer begins: its overall code is OK.
var allowed = []byte{1 << 3, byte(rlsv3.RateLimitResponse_OK)}

func by(key, value string) *descriptorv3.RateLimitDescriptor {
	return &descriptorv3.RateLimitDescriptor{Entries: []*descriptorv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}
