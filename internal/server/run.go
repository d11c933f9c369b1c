// Package server is the server: it composes stores, rules, listeners and APIs as a config says, runs them, reports its health,
// and drains when its time has come.
//
// It knows no flags and prints nothing: the program that runs it does.
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
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/listen"
	"github.com/headgate/headgate/internal/server/meter"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/server/telemetry"
	"github.com/headgate/headgate/internal/server/tracing"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

const (
	// noticeTime is for load balancers to see that this server is about to stop; it still takes everything.
	noticeTime = time.Second
	// drainTime is for requests under way, and for streams to go elsewhere.
	drainTime = 10 * time.Second
)

// Options are what a run is told besides its config.
type Options struct {
	// Dev counts in memory, takes no tokens, and stops without notice to load balancers. Without rules in the config there is an example.
	Dev bool
	// Version is that of the program.
	Version string
	Log     *slog.Logger
	// Up, if not nil, is called with the addresses of the listeners by name, when all of them are up. Its error ends the run.
	Up func(addresses map[string]string) error
}

// server is one run: what it is made of.
type server struct {
	Options
	config       *config.Config
	metrics      *telemetry.Metrics
	tracer       *tracing.Tracer
	health       *health
	activity     *activity
	redis        *redisstore.Store // nil if counters are in memory
	store        *storewrap.Store  // around it
	limiter      *headgate.Limiter
	db           *pgrules.DB  // nil if rules are in files
	usage        *meter.Meter // nil likewise
	resolver     *identity.Resolver
	certificates *listen.Certificates // nil without TLS
	endpoints    []*endpoint
	onDrain      []func()
}

// heapFloor is a part of the heap that is never touched, and so takes no memory. The garbage collector runs when the heap
// has doubled; a server that keeps little would run it dozens of times a second, for a tenth of its time.
const heapFloor = 64 << 20

// Run serves until ctx ends, and then until what was asked is answered. If the rules to start with are wrong, the error is a
// *RulesError.
func Run(ctx context.Context, c *config.Config, o Options) error {
	s := &server{Options: o, config: c, metrics: telemetry.New(o.Version), health: &health{log: o.Log}}
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
		defer s.store.Close()
	}
	// The end of ctx only begins the end: what works in the background goes on until the last answer.
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
	s.activity = newActivity(s)
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
			Cert: files.CertFile, Key: files.KeyFile, ClientCA: files.ClientCAFile,
		}, s.Log); err != nil {
			return err
		}
		tasks.Go(func() { s.certificates.Watch(background) })
	}
	if s.redis != nil {
		s.askRedis(ctx) // who comes first finds Redis connected, if it is there
		tasks.Go(func() { s.watchRedis(background) })
	}
	return s.listen(ctx)
}

// observe is told of every decision for callers.
func (s *server) observe(ctx context.Context, o *headgate.Observation) {
	s.metrics.Observe(o)
	s.tracer.Note(ctx, o)
	s.activity.Note(ctx, o)
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

// nodeName tells servers apart for people, also those on one machine.
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
