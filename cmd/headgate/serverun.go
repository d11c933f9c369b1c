package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/listen"
	"github.com/headgate/headgate/internal/server/meter"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/server/telemetry"
	"github.com/headgate/headgate/internal/server/tracing"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/ruledoc"
	"github.com/headgate/headgate/storewrap"
)

const (
	// noticeTime is for load balancers to see that this server is about to stop; it still takes everything.
	noticeTime = time.Second
	// drainTime is for requests under way, and for streams to go elsewhere.
	drainTime = 10 * time.Second
	// askRedisEvery is how soon a change of Redis is noticed for logs and readiness; decisions notice by themselves.
	askRedisEvery = time.Second
	// lookEvery is how many turns of that it takes until a failover is noticed for metrics.
	lookEvery = 5
)

// server is one run of "serve": what it is made of.
type server struct {
	config *config.Config
	dev    bool
	log    *slog.Logger
	// up, if not nil, is told the addresses when all listeners are up, by name.
	up func(addresses map[string]string) error

	metrics      *telemetry.Metrics
	tracer       *tracing.Tracer
	health       *health
	seen         *seen
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

// run serves until ctx ends, and then until what was asked is answered.
func (s *server) run(ctx context.Context) error {
	defer runtime.KeepAlive(make([]byte, heapFloor))
	s.metrics, s.health = telemetry.New(programVersion()), &health{log: s.log}
	var err error
	if s.tracer, err = s.newTracer(ctx); err != nil {
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
	s.seen = newSeen(s)
	tasks.Go(func() { s.seen.nodes.Run(background) })
	if s.db != nil {
		s.usage = meter.New(s.limiter, s.db.AddUsage, s.log)
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
		}, s.log); err != nil {
			return err
		}
		defer s.certificates.Close()
	}
	if s.redis != nil {
		s.askRedis(ctx) // who comes first finds Redis connected, if it is there
		tasks.Go(func() { s.watchRedis(background) })
	}
	return s.listen(ctx)
}

// newTracer makes the tracer, which does not wait for the collector.
func (s *server) newTracer(ctx context.Context) (*tracing.Tracer, error) {
	return tracing.New(ctx, tracing.Options{
		Address: s.config.Tracing.Address, Sample: s.config.Tracing.Sample / 100,
		Version: programVersion(), Node: s.nodeName(), Log: s.log,
	})
}

// openStore makes the limiter, yet without rules. It does not wait for Redis.
func (s *server) openStore() error {
	secret, err := config.ReadSecret(s.config.SecretFile)
	if err != nil {
		return fmt.Errorf("secret_file: %w", err)
	}
	var store headgate.Store = memstore.New(memstore.Options{})
	if s.dev {
		s.metrics.StoreUp(true)
	} else {
		o, err := redisOptions(&s.config.Redis)
		if err != nil {
			return err
		}
		if s.redis, err = redisstore.New(o); err != nil {
			return err
		}
		s.store = storewrap.New(s.redis, storewrap.Options{Deadline: s.config.Redis.Deadline, Nodes: s.config.Nodes, LocalShare: s.config.LocalShare, Log: s.log, Observe: s.metrics.StoreCall})
		s.metrics.Store(s.store.Stats)
		s.metrics.Nodes(s.redis.Nodes)
		s.health.store = s.store.Stats
		store = s.store
		s.health.state.Redis = &redisHealth{Status: "connecting", Address: redact.Address(o.Address), Since: now()}
	}
	none, err := headgate.Compile()
	s.limiter = headgate.NewLimiter(store, none, headgate.Options{Secret: secret})
	s.metrics.Limits(s.limiter.Rules)
	return err
}

// observe is told of every decision for callers.
func (s *server) observe(ctx context.Context, o *headgate.Observation) {
	s.metrics.Note(o)
	s.tracer.Note(ctx, o)
	s.seen.Note(ctx, o)
	if s.usage != nil {
		s.usage.Note(o)
	}
}

// watchRedis notes whether Redis answers, again and again.
func (s *server) watchRedis(ctx context.Context) {
	ticker := time.NewTicker(askRedisEvery)
	defer ticker.Stop()
	for turn := 0; ; turn++ {
		if turn%lookEvery == 0 {
			s.lookAtServers(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.askRedis(ctx)
		}
	}
}

// lookAtServers notes which primaries there are. Where that is not known, or we lack the right to ask, metrics stay as they are.
func (s *server) lookAtServers(ctx context.Context) {
	servers, err := s.redis.Servers(ctx)
	if err != nil {
		s.log.DebugContext(ctx, "not all servers of Redis say which they are: a failover may not be seen", "error", err)
	}
	evicted := map[string]int64{}
	for _, server := range servers {
		evicted[server.RunID] = server.EvictedKeys
	}
	s.metrics.StoreServers(evicted)
}

// askRedis notes whether Redis answers.
func (s *server) askRedis(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, askRedisEvery)
	defer cancel()
	if err := s.redis.Ready(asking); ctx.Err() == nil {
		s.health.redis(err)
		s.metrics.StoreUp(err == nil)
	}
}

// badRulesError is why there are no rules to start with, if that is written in them.
type badRulesError struct {
	problems ruledoc.Errors
	advice   string
}

func (e *badRulesError) Error() string { return e.problems.Error() }

// watchRules takes the rules into use, now and whenever they change, until ctx ends and wait returns. Without any there is an example.
func (s *server) watchRules(ctx context.Context) (wait func(), err error) {
	if s.config.Mode != headgate.Enforce {
		s.log.Warn("mode is " + s.config.Mode.String() + ": this server refuses nobody")
	}
	if !s.config.AllowNoRules {
		s.health.countRules = func() int { return len(s.limiter.Rules().Rules()) }
		s.health.remedy = "add rules to " + strings.Join(s.config.Rules, ", ") + ", or set allow_no_rules: true in the config"
		if s.config.Postgres.Address != "" {
			s.health.remedy = "publish some with headgate rules apply FILE, or set allow_no_rules: true in the config"
		}
	}
	report := func(e ruledoc.Event) {
		s.metrics.Rules(e)
		s.health.rules(ctx, e)
	}
	if s.config.Postgres.Address != "" && !s.dev {
		return s.followRules(ctx, report)
	}
	if len(s.config.Rules) == 0 {
		rules, err := headgate.Compile(headgate.Rule{ID: "example", By: []string{"ip"}, Limit: headgate.PerMinute(5)})
		if err != nil {
			return nil, err
		}
		s.limiter.SetRules(rules)
		report(ruledoc.Event{Kind: ruledoc.Applied, Version: rules.Version()})
		return func() {}, nil
	}
	watcher, err := ruledoc.Watch(ctx, ruledoc.WatchOptions{
		Paths: s.config.Rules,
		Keep:  s.config.Keep,
		Apply: func(d *ruledoc.Document) error {
			d.Rules = d.Rules.WithMode(max(d.Mode, s.config.Mode))
			return d.Apply(s.limiter)
		},
		Report: report,
	})
	if err != nil {
		return nil, s.noRules(err)
	}
	return watcher.Wait, nil
}

// followRules takes the rules from PostgreSQL.
func (s *server) followRules(ctx context.Context, report func(ruledoc.Event)) (wait func(), err error) {
	if s.db, err = openPostgres(s.config); err != nil { //nolint:contextcheck // it does not connect
		return nil, err
	}
	follower, err := s.db.Follow(ctx, pgrules.FollowOptions{
		Limiter: s.limiter, Mode: s.config.Mode, Keep: s.config.Keep, Node: s.nodeName(), Report: report, Log: s.log,
	})
	if err != nil {
		return nil, err
	}
	s.metrics.RulesChecked(follower.Checked)
	return follower.Wait, nil
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

// noRules says why the server does not start, and what to do. The kept rules, if any, did not help.
func (s *server) noRules(err error) error {
	if err == nil {
		return nil
	}
	advice := "no rules to start with: correct the files"
	if s.config.Keep == "" {
		advice += "; with a file for the last good rules in keep, the next start would not need them"
		if reason := errors.Unwrap(err); reason != nil {
			err = reason
		}
	}
	var problems ruledoc.Errors
	if errors.As(err, &problems) {
		return &badRulesError{problems, "headgate: " + advice + "\n"}
	}
	return fmt.Errorf("%s: %w", advice, err)
}

func (s *server) openResolver() error {
	o := s.config.Identity.Options
	secret, err := config.ReadSecret(s.config.Identity.JWTSecretFile)
	if err != nil {
		return fmt.Errorf("identity.jwt.secret_file: %w", err)
	}
	o.JWT.Secret, o.Log = secret, s.log
	s.resolver, err = identity.New(o)
	return err
}
