package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/regiongrpc"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

// newRegionAdmin returns a server of region eu on a Redis, which does not run.
func newRegionAdmin(t *testing.T, redis *redisstore.Store) *regionAdmin {
	t.Helper()
	c := config.Default()
	c.Regions = config.Regions{Name: "eu", Members: []config.RegionMember{
		{Name: "eu", Address: "127.0.0.1:1", Weight: 3}, {Name: "us", Address: "127.0.0.1:2", Weight: 1},
	}}
	shares := region.NewShares([]region.Member{{Name: "eu", Weight: 3}, {Name: "us", Weight: 1}}, "eu")
	network, err := regiongrpc.New(regiongrpc.Options{
		Own: "eu", Members: []regiongrpc.Member{{Name: "eu", Address: "127.0.0.1:1"}, {Name: "us", Address: "127.0.0.1:2"}}, Epoch: shares.Epoch(),
		Certificates: func() (tls.Certificate, *x509.CertPool) { return tls.Certificate{}, nil },
		StoreTime:    storeTime(redis), Log: slog.New(slog.DiscardHandler),
	})
	testenv.NoError(t, err)
	s := &server{Options: Options{Version: "v1", Log: slog.New(slog.DiscardHandler)}, config: c, redis: redis}
	s.regions = &regions{
		shares: shares, network: network, store: region.New(redis, shares, network.Links()),
		weights: region.NewWeights(shares, redis, network.Pullers(), s.Log), router: region.NewRouter(redis, shares, nil),
	}
	t.Cleanup(s.regions.close)
	nodes := fanout.New(fanout.Options{Bus: redis, Node: s.nodeName(), Nodes: redis.Nodes})
	topic := fanout.NewTopic(nodes, "regions", s.regionResult, mergeRegions)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		nodes.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return &regionAdmin{s, topic}
}

// TestSilentServer names a server of this region that is announced and does not respond.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	address := "redis://" + testenv.Start(t, testenv.Redis).Addr()
	open := func(name string) *redisstore.Store {
		store, err := redisstore.New(redisstore.Options{Address: address, Node: name})
		testenv.NoError(t, err)
		t.Cleanup(store.Close)
		testenv.NoError(t, store.Ready(t.Context()))
		return store
	}
	name := (&server{config: config.Default()}).nodeName()
	own := open(name)
	silent := open("gate-2:8080")
	defer silent.Close()
	for deadline := time.Now().Add(time.Minute); own.Nodes() < 2 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
	}
	a := newRegionAdmin(t, own)
	all, coverage, err := a.servers.Query(t.Context(), regionQuery{})
	testenv.NoError(t, err)
	if coverage.Nodes != 2 || coverage.Replied != 1 || !slices.Equal(all.Nodes, []string{name}) || !strings.Contains(coverage.Problem, "1 of 2 nodes did not answer") {
		t.Errorf("%+v, %+v", all, coverage)
	}
	if missing := a.missing(t.Context(), all.Nodes); !slices.Equal(missing, []string{"gate-2:8080"}) {
		t.Errorf("missing: %q", missing)
	}
	if len(all.Unreached) != 1 || all.Unreached[0].Region != "us" || all.Unreached[0].Node != name {
		t.Errorf("%+v", all.Unreached)
	}
}

// TestDescribePeer shows what is known about a region, before and after it has responded.
func TestDescribePeer(t *testing.T) {
	t.Parallel()
	var m adminapi.RegionMember
	if describePeer(&m, &regiongrpc.State{Peer: "us"}); m.Up || m.RTT != nil || m.LastContact != nil || m.SameMembers != nil || m.ClockAhead != nil ||
		m.Problem != "has not responded yet" {
		t.Errorf("%+v", m)
	}
	describePeer(&m, &regiongrpc.State{
		Peer: "us", Up: true, Version: "v2", LastContact: time.Now(), RTT: time.Second, OtherMembers: true, ClockKnown: true, ClockAhead: -time.Second, Problem: "other members",
	})
	if !m.Up || *m.RTT != 1 || m.LastContact == nil || *m.SameMembers || *m.ClockAhead != -1 || m.Version != "v2" || m.Problem != "other members" {
		t.Errorf("%+v", m)
	}
}

// TestHomeProblem shows what is known about a home that has not decided.
func TestHomeProblem(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]regiongrpc.State{
		"has not responded yet": {}, "does not respond: connection refused": {Problem: "connection refused"},
		"did not decide: it did not respond in time, or its Redis is unavailable": {Up: true},
		"did not decide: it has other members":                                    {Up: true, Problem: "it has other members"},
	} {
		if got := homeProblem(&s); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}

// TestDivideCredit gives back units where most are used, and names regions that did not respond only if their units lack.
func TestDivideCredit(t *testing.T) {
	t.Parallel()
	used := func(name string, n int64) regiongrpc.Reply {
		return regiongrpc.Reply{Region: name, Usage: region.Usage{Capacity: 100, Remaining: 100 - n}}
	}
	silent := regiongrpc.Reply{Region: "us", Err: errors.New("did not respond")}
	for _, test := range []struct {
		units    int64
		replies  []regiongrpc.Reply
		want     map[string]int64
		problems int
	}{
		{30, []regiongrpc.Reply{used("ap", 20), used("br", 25)}, map[string]int64{"br": 25, "ap": 5}, 0},
		{30, []regiongrpc.Reply{used("ap", 40), silent}, map[string]int64{"ap": 30}, 0},
		{50, []regiongrpc.Reply{used("ap", 40), silent}, map[string]int64{"ap": 40}, 1},
		{50, []regiongrpc.Reply{used("ap", 0), used("us", 0)}, map[string]int64{}, 0},
	} {
		got, problems := divideCredit(test.replies, test.units)
		if !maps.Equal(got, test.want) || len(problems) != test.problems {
			t.Errorf("%d units: %v, %v, want %v", test.units, got, problems, test.want)
		}
	}
}

// TestMergeRegions adds up what servers have lent and borrowed.
func TestMergeRegions(t *testing.T) {
	t.Parallel()
	one := regionResult{Nodes: []string{"a"}}
	one.Loans.Lent, one.Loans.Requests, one.Loans.Rejected = 5, 7, map[string]int64{"no_units": 2}
	sum := mergeRegions(regionQuery{}, []regionResult{one, one, {}})
	if sum.Loans.Lent != 10 || sum.Loans.Requests != 14 || sum.Loans.Rejected["no_units"] != 4 || len(sum.Nodes) != 2 {
		t.Errorf("%+v", sum)
	}
}
