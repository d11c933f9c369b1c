package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of the protocol between regions

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/regiongrpc"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/listen"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

// regions is this server's part in the limits that regions share. It is nil if there is only one region.
type regions struct {
	shares       *region.Shares
	certificates *listen.Certificates
	network      *regiongrpc.Network
	store        *region.Store
	weights      *region.Weights
	homes        map[string]*storewrap.Store // the other regions, by name, as homes of subjects
	router       *region.Router
}

// openRegions connects to the other regions in the background.
func (s *server) openRegions(secret []byte) (*regions, error) {
	c := &s.config.Regions
	addresses := make([]regiongrpc.Member, len(c.Members))
	for i, m := range c.Members {
		addresses[i] = regiongrpc.Member{Name: m.Name, Address: m.Address}
	}
	r := &regions{shares: c.Shares(secret)}
	var err error
	if r.certificates, err = listen.Load(listen.Files{
		Cert: c.TLS.CertFile, Key: c.TLS.KeyFile, ClientCA: c.TLS.CAFile, Section: "regions.tls",
	}, s.Log); err != nil {
		return nil, err
	}
	if r.network, err = regiongrpc.New(regiongrpc.Options{
		Own: c.Name, Members: addresses, Epoch: r.shares.Epoch(), Subjects: r.shares.Subjects(), Version: s.Version,
		Certificates: r.certificates.Current, StoreTime: storeTime(s.redis), Log: s.Log,
	}); err != nil {
		return nil, err
	}
	r.store = region.New(s.redis, r.shares, r.network.Links())
	r.weights = region.NewWeights(r.shares, s.redis, r.network.Pullers(), s.Log)
	if c.OnStoreLoss == config.DenyLost {
		r.store.PresumeUsed(s.redis.Lost)
	}
	s.metrics.Regions(r.store.Stats, r.network.State)
	return r, nil
}

// openRouter returns the store of the limiter, which decides charges in the homes of their subjects.
func (s *server) openRouter() headgate.Store {
	r, homes := s.regions, map[string]headgate.Store{}
	r.homes = map[string]*storewrap.Store{}
	for name, home := range r.network.Homes() {
		o := s.wrapOptions()
		o.Deadline, o.Log = s.config.Regions.HomeDeadline, s.Log.With("region", name)
		r.homes[name] = storewrap.New(region.NewHomeTarget(home, s.redis.Membership), o)
		homes[name] = r.homes[name]
	}
	r.router = region.NewRouter(s.store, r.shares, homes)
	s.metrics.Homes(r.homeStats)
	return r.router
}

// homeStats returns the statistics of the other regions as homes, by name.
func (r *regions) homeStats() map[string]storewrap.Stats {
	all := map[string]storewrap.Stats{}
	for name, home := range r.homes {
		all[name] = home.Stats()
	}
	return all
}

// storeTime returns a function that reads the clock of a store.
func storeTime(store *redisstore.Store) func(context.Context) (time.Time, error) {
	peek := headgate.Charge{
		Subject: headgate.SubjectOf("region clock"), Counter: headgate.CounterOf("region clock", "", headgate.TokenBucket),
		Limit: headgate.PerSecond(1), Observe: true,
	}
	return func(ctx context.Context) (time.Time, error) {
		var results [1]headgate.Result
		err := store.Take(ctx, []headgate.Charge{peek}, results[:])
		return results[0].Time, err
	}
}

// run keeps the connections up until ctx ends.
func (r *regions) run(ctx context.Context) {
	if r == nil {
		return
	}
	var running sync.WaitGroup
	running.Go(func() { r.certificates.Watch(ctx) })
	running.Go(func() { r.network.Run(ctx) })
	running.Go(func() { r.weights.Run(ctx) })
	running.Wait()
}

// learn waits until the weights of the regions are known, but not for long.
func (r *regions) learn(ctx context.Context) {
	if r != nil {
		r.weights.Learn(ctx)
	}
}

// close waits for the units that are being borrowed, and for refunds in other regions.
func (r *regions) close() {
	if r != nil {
		r.router.Close()
		for _, home := range r.homes {
			home.Close()
		}
		r.store.Close()
		r.network.Close()
	}
}

// addRegions adds the listener for other regions.
func (s *server) addRegions() {
	if s.regions == nil {
		return
	}
	server := listen.NewGRPC(nil, encoding.GetCodecV2("proto"), nil, s.regions.network.ServerOptions()...)
	s.regions.network.Register(server, s.regions.store, region.NewHomeStore(s.store, s.regions.shares))
	s.regions.network.RegisterWeights(server, s.regions.weights)
	s.regions.network.ServeCounters(regionCounters{s.regions.store, s.store})
	s.addGRPC("regions", s.config.Listen.Regions, server)
}
