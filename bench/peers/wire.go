package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/bare"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/testenv"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// Variants over the wire.
const (
	bareRLS       = "bare RLS, no store"
	theirsAllowed = "envoyproxy/ratelimit, allowed"
	theirsDenied  = "envoyproxy/ratelimit, denied"
	theirsCached  = "envoyproxy/ratelimit, denied, cache"
	oursStrict    = "Headgate RLS, strict"
	oursAllowed   = "Headgate RLS, leased"
	oursDenied    = "Headgate RLS, denied"
	bareEcho      = "bare gRPC echo"
	checkAllowed  = "Headgate Check, leased"
	checkDenied   = "Headgate Check, denied"
	bareStream    = "bare stream echo"
	streamAllowed = "Headgate CheckStream, leased"
	streamDenied  = "Headgate CheckStream, denied"
)

// wire compares services.
func (b *bench) wire() {
	all := b.startServices()
	variants := append(b.unary(all), b.streams(all)...)
	title := fmt.Sprintf("gRPC, %d callers, zipf over %d subjects; server CPU of the service and Redis", callers, hot)
	got := b.Measure(title, b.Rounds, b.Slice, variants)
	for _, name := range []string{checkAllowed, checkDenied, streamAllowed, streamDenied} {
		fmt.Printf("%s: %.2f %% decided locally\n", name, all.local[name].share())
	}
	b.Note(oursDenied+" ÷ "+theirsCached, got.Ratio(oursDenied, theirsCached, paired.Throughput))
	for _, of := range []struct{ leased, denied, least string }{
		{oursAllowed, oursDenied, bareRLS}, {checkAllowed, checkDenied, bareEcho},
	} {
		b.ratio(got, of.leased, of.least, 0.85)
		b.ratio(got, of.denied, of.least, 0.85)
		b.ratio(got, of.leased, theirsAllowed, 2)
		b.ratio(got, of.denied, theirsDenied, 2)
	}
	for _, stream := range []string{streamAllowed, streamDenied} {
		b.ratio(got, stream, bareStream, 0.75)
		b.ratio(got, stream, theirsAllowed, 6)
	}
	b.chart("Service over gRPC, 1,000 subjects", got, variants, false)
	b.throughEnvoy(all)
}

// unary returns variants that send encoded requests and check only the first bytes of responses.
func (b *bench) unary(all *services) []paired.Variant {
	var variants []paired.Variant
	// Responses begin with field 1, OK or allowed, with field 1, OVER_LIMIT, or with field 2, the retry time.
	yes, over, later := []byte{1 << 3, 1}, []byte{1 << 3, 2}, []byte{2 << 3}
	lease, cache := []byte(headgate.PathLease), []byte(headgate.PathCache)
	const rls = rlsv3.RateLimitService_ShouldRateLimit_FullMethodName
	for _, v := range []struct {
		name, method string
		of           *service
		request      func(subject string) proto.Message
		begins       []byte // of the response
	}{
		{bareRLS, rls, &all.atOnce, descriptor("user"), yes},
		{theirsAllowed, rls, &all.theirs, descriptor("user"), yes},
		{theirsDenied, rls, &all.theirs, descriptor("denied"), over},
		{theirsCached, rls, &all.theirsCached, descriptor("denied"), over},
		{oursStrict, rls, &all.ours, descriptor("strict"), yes},
		{oursAllowed, rls, &all.ours, descriptor("user"), yes},
		{oursDenied, rls, &all.ours, descriptor("denied"), over},
		{bareEcho, bare.EchoMethod, &all.atOnce, name, yes},
		{checkAllowed, checkv1.CheckService_Check_FullMethodName, &all.ours, check("/user"), yes},
		{checkDenied, checkv1.CheckService_Check_FullMethodName, &all.ours, check("/denied"), later},
	} {
		encoded := make([][]byte, hot)
		for i := range encoded {
			var err error
			encoded[i], err = proto.Marshal(v.request(b.draws.keys[i]))
			testenv.NoError(b, err)
			for range 2 { // the first request is allowed everywhere
				_, err := bare.Invoke(b.Context(), v.of.conn, v.method, encoded[i], nil)
				testenv.NoError(b, err)
			}
		}
		local := &tally{}
		all.local[v.name] = local
		variants = append(variants, paired.Variant{
			Name: v.name, Callers: callers, ServerCPU: b.cpu(v.of), Warm: b.warm(v.of == &all.ours),
			Do: func(caller, n int) error {
				response, err := bare.Invoke(context.Background(), v.of.conn, v.method, encoded[next(b.draws.hot, caller, n)], v.begins)
				local.note(caller, n, bytes.Contains(response, lease) || bytes.Contains(response, cache))
				return err
			},
		})
	}
	return variants
}

// warm returns the warm-up of a variant: a slice if its leases expire during the slices of others.
func (b *bench) warm(leases bool) time.Duration {
	if leases {
		return b.Slice
	}
	return 0
}

func descriptor(key string) func(subject string) proto.Message {
	return func(subject string) proto.Message {
		return &rlsv3.RateLimitRequest{
			Domain: "api", Descriptors: []*descriptorv3.RateLimitDescriptor{bare.Descriptor(key, subject)},
		}
	}
}

func name(subject string) proto.Message { return wrapperspb.String(subject) }

func check(path string) func(subject string) proto.Message {
	return func(subject string) proto.Message {
		return &checkv1.CheckRequest{Attributes: map[string]string{"path": path, "user": subject}}
	}
}

// streams returns variants over one stream that all callers share; ours uses package client.
func (b *bench) streams(all *services) []paired.Variant {
	echo := bare.Stream(b, all.atOnce.conn, callers)
	remote, err := client.New(client.Options{Addresses: []string{all.ours.Address}, Timeout: 5 * time.Second})
	testenv.NoError(b, err)
	b.Cleanup(remote.Close)
	stream := func(name, path string, allowed bool) do {
		local := &tally{}
		all.local[name] = local
		requests := make([]headgate.Request, hot)
		for i := range requests {
			requests[i].Attributes = headgate.Attributes{"path": path, "user": b.draws.keys[i]}
		}
		return func(caller, n int) error {
			d, err := remote.Check(context.Background(), requests[next(b.draws.hot, caller, n)])
			if err == nil && d.Allowed != allowed {
				err = fmt.Errorf("unexpected decision %+v", d)
			}
			local.note(caller, n, d.Path == headgate.PathLease || d.Path == headgate.PathCache)
			return err
		}
	}
	return []paired.Variant{
		{Name: bareStream, Callers: callers, ServerCPU: b.cpu(&all.atOnce), Do: func(caller, n int) error {
			return echo(caller, b.draws.keys[next(b.draws.hot, caller, n)])
		}},
		{Name: streamAllowed, Callers: callers, ServerCPU: b.cpu(&all.ours), Warm: b.Slice, Do: stream(streamAllowed, "/user", true)},
		{Name: streamDenied, Callers: callers, ServerCPU: b.cpu(&all.ours), Warm: b.Slice, Do: stream(streamDenied, "/denied", false)},
	}
}
