// Package server composes stores, rules, listeners and APIs as configured, runs them, reports their health, and drains on
// shutdown.
//
// It has no flags and prints nothing: that is up to the program that runs it.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/listen"
	"github.com/headgate/headgate/internal/server/meter"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/server/telemetry"
	"github.com/headgate/headgate/internal/server/tracing"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

const (
	// noticeTime is how long the server reports that it is draining, and still accepts requests, before it stops listening.
	noticeTime = time.Second
	// drainTime is how long pending requests and streams have to end.
	drainTime = 10 * time.Second
	// minReleaseTime and maxReleaseTime bound how long the store has to record that the slots of callers are released, within the
	// drain time. A store that did not answer is called again after a second.
	minReleaseTime = time.Second
	maxReleaseTime = 3 * time.Second
)

// Options are the parameters of Run that are not in the config.
type Options struct {
	// Dev requires no tokens and stops without noticeTime. If the config names no rules, an example is used.
	Dev bool
	// Version is the version of the program.
	Version string
	Log     *slog.Logger
	// Up, if not nil, is called when all listeners are open, with their addresses by name. An error ends the run.
	Up func(addresses map[string]string) error
}

// server contains the components of one run.
type server struct {
	Options
	config       *config.Config
	metrics      *telemetry.Metrics
	tracer       *tracing.Tracer
	health       *health
	activity     *activity
	memory       *memstore.Store   // nil if counters are in Redis
	redis        *redisstore.Store // nil if counters are in memory
	regions      *regions          // nil if there is only one; wraps redis
	store        *storewrap.Store  // wraps redis, or regions
	limiter      *headgate.Limiter
	slots        *check.Slots
	db           *pgrules.DB  // nil if rules are in files
	usage        *meter.Meter // nil if rules are in files
	resolver     *identity.Resolver
	certificates *listen.Certificates // nil without TLS
	endpoints    []*endpoint
	onDrain      []func()
	warnedRules  string // version of the rules that warnOfRegions has logged
}

// heapFloor is the size of an allocation that is never written to, and so takes no physical memory. The garbage collector
// runs when the heap has doubled; without it, a server with a small heap would collect dozens of times a second and spend 10%
// of its time on that.
const heapFloor = 64 << 20

// Run serves until ctx ends, and then until pending requests are complete. If the rules to start with are invalid, the error is a
// *RulesError.
func Run(ctx context.Context, c *config.Config, o Options) error {
	s := &server{Options: o, config: c, metrics: telemetry.New(o.Version), health: &health{log: o.Log}, slots: check.NewSlots()}
	defer runtime.KeepAlive(make([]byte, heapFloor))
	var err error
	if s.tracer, err = tracing.New(ctx, tracing.Options{
		Address: s.config.Tracing.Address, Sample: s.config.Tracing.Sample / 100,
		Version: s.Version, Node: s.nodeName(), Log: s.Log,
	}); err != nil {
		return err
	}
	defer s.tracer.Close(context.WithoutCancel(ctx))
	if err := s.openStore(); err != nil { //nolint:contextcheck // the store outlives ctx, and is closed below
		return err
	}
	if s.redis != nil {
		defer s.redis.Close()
		defer s.regions.close()
		defer s.store.Close()
	}
	// When ctx ends, the server drains: background tasks continue until the last response.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if s.db != nil {
			s.db.Close()
		}
	}()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	wait, err := s.watchRules(background)
	if err != nil {
		return err
	}
	tasks.Go(wait)
	s.activity = newActivity(s) //nolint:contextcheck // releases do not belong to a call
	tasks.Go(func() { s.activity.nodes.Run(background) })
	if s.db != nil {
		s.usage = meter.New(s.limiter, s.db.AddUsage, s.Log)
		s.metrics.UsageLost(s.usage.Lost)
		tasks.Go(func() { s.usage.Run(background) })
	}
	if err := s.openResolver(); err != nil { //nolint:contextcheck // as above
		return err
	}
	defer s.resolver.Close()
	if files := s.config.Listen.TLS; files.CertFile != "" {
		if s.certificates, err = listen.Load(listen.Files{
			Cert: files.CertFile, Key: files.KeyFile, ClientCA: files.ClientCAFile, Section: "listen.tls",
		}, s.Log); err != nil {
			return err
		}
		tasks.Go(func() { s.certificates.Watch(background) })
	}
	if s.redis != nil {
		s.pingRedis(ctx) // so that Redis is connected before the first request, if it is available
		tasks.Go(func() { s.watchRedis(background) })
		tasks.Go(func() { s.regions.run(background) })
		s.regions.learn(ctx)
	} else {
		tasks.Go(func() { s.watchMemory(background) })
	}
	return s.listen(ctx)
}

// observe records a decision.
func (s *server) observe(ctx context.Context, o *headgate.Observation) {
	s.metrics.Observe(o)
	s.tracer.Observe(ctx, o)
	s.activity.Observe(ctx, o)
	if s.usage != nil {
		s.usage.Note(o)
	}
}

func (s *server) openResolver() error {
	o := s.config.Identity.Options
	secret, err := config.ReadSecret(s.config.Identity.JWTSecretFile)
	if err != nil {
		return fmt.Errorf("identity.jwt.secret_file: %w", err)
	}
	o.JWT.Secret, o.Log = secret, s.Log
	s.resolver, err = identity.New(o)
	return err
}

// nodeName returns a readable name of this server, which differs from those of other servers on the same host.
func (s *server) nodeName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	for _, address := range []string{s.config.Listen.HTTP, s.config.Listen.GRPC, s.config.Listen.Ops} {
		if _, port, err := net.SplitHostPort(address); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return host
}
