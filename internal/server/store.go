package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/redisstore"
	"github.com/headgate/headgate/storewrap"
)

const (
	// pingInterval is how often the state of Redis is checked for logs and readiness. Decisions do not depend on it.
	pingInterval = time.Second
	// serversEvery is the number of pings between two checks for a failover, which is for metrics only.
	serversEvery = 5
)

// openStore creates the limiter, without rules. It does not wait for Redis.
func (s *server) openStore() error {
	secret, err := config.ReadSecret(s.config.SecretFile)
	if err != nil {
		return fmt.Errorf("secret_file: %w", err)
	}
	var store headgate.Store
	options := headgate.Options{Secret: secret}
	if s.config.Store == config.StoreMemory {
		s.memory = memstore.New(memstore.Options{MaxEntries: s.config.Memory.MaxCounters})
		s.metrics.StoreUp(true)
		s.metrics.MemoryCounters(s.memory.Len)
		store = s.memory
	} else {
		ro, err := RedisOptions(&s.config.Redis)
		if err != nil {
			return err
		}
		ro.Node, ro.WatchLoss = s.nodeName(), s.config.Regions.Name != "" && s.config.Regions.OnStoreLoss == config.DenyLost
		if s.redis, err = redisstore.New(ro); err != nil {
			return err
		}
		store = s.redis
		if len(s.config.Regions.Members) > 0 {
			if s.regions, err = s.openRegions(secret); err != nil {
				s.redis.Close()
				return err
			}
			store, options.Share = s.regions.store, s.regions.shares.Share
		}
		o := s.wrapOptions()
		o.Deadline, o.Observe = s.config.Redis.Deadline, s.metrics.StoreCall
		s.store = storewrap.New(store, o)
		s.metrics.Store(s.store.Stats)
		s.metrics.Nodes(s.redis.Nodes)
		s.health.store = s.store.Stats
		store = s.store
		if s.regions != nil {
			store = s.openRouter()
		}
		s.health.state.Redis = &redisHealth{Status: "connecting", Address: redact.Address(ro.Address), Since: now()}
	}
	none, err := headgate.Compile()
	s.limiter = headgate.NewLimiter(store, none, options)
	s.metrics.Limits(s.limiter.Rules)
	s.metrics.Slots(s.limiter)
	return err
}

// wrapOptions returns the options that all wrapped stores have in common.
func (s *server) wrapOptions() storewrap.Options {
	o := storewrap.Options{Nodes: s.config.Nodes, LocalShare: s.config.LocalShare, Log: s.Log}
	if s.regions != nil {
		o.Regions, o.RegionShare = len(s.config.Regions.Members), s.regions.shares.Share
	}
	return o
}

// watchMemory records the counters that the store in memory evicts, and logs when it begins to.
func (s *server) watchMemory(ctx context.Context) {
	s.Log.InfoContext(ctx, "counters are in memory: they are not shared with other servers, and start at zero when this one restarts",
		"max_counters", s.config.Memory.MaxCounters)
	ticker := time.NewTicker(serversEvery * pingInterval)
	defer ticker.Stop()
	for before := int64(0); ; {
		evicted := s.memory.Evicted()
		s.metrics.StoreServers(map[string]int64{string(config.StoreMemory): evicted})
		if before == 0 && evicted > 0 {
			s.Log.WarnContext(ctx, "counters are evicted before they expire: their clients start with the full limit again; raise memory.max_counters",
				"max_counters", s.config.Memory.MaxCounters)
		}
		before = evicted
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// watchRedis checks periodically whether Redis responds.
func (s *server) watchRedis(ctx context.Context) {
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	for turn := 0; ; turn++ {
		if turn%serversEvery == 0 {
			s.countServers(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.pingRedis(ctx)
		}
	}
}

// countServers records the primaries of Redis. If they are unknown, or we lack the permission to query them, the metrics do
// not change.
func (s *server) countServers(ctx context.Context) {
	servers, err := s.redis.Servers(ctx)
	if err != nil {
		s.Log.DebugContext(ctx, "cannot identify all redis servers: a failover may not be counted", "error", err)
	}
	evicted := map[string]int64{}
	for _, server := range servers {
		evicted[server.RunID] = server.EvictedKeys
	}
	s.metrics.StoreServers(evicted)
}

// pingRedis records whether Redis responds.
func (s *server) pingRedis(ctx context.Context) {
	pingCtx, cancel := context.WithTimeout(ctx, pingInterval)
	defer cancel()
	if err := s.redis.Ready(pingCtx); ctx.Err() == nil {
		s.health.redis(err)
		s.metrics.StoreUp(err == nil)
	}
}

// RedisOptions converts the config, and reads the secrets in its files.
func RedisOptions(c *config.Redis) (redisstore.Options, error) {
	o := redisstore.Options{Address: c.Address, Namespace: c.Namespace, Username: c.Username}
	password, err := config.ReadSecret(c.PasswordFile)
	if err != nil {
		return o, fmt.Errorf("redis.password_file: %w", err)
	}
	o.Password = string(password)
	if !c.TLS.Enabled {
		return o, nil
	}
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName}
	if c.TLS.CAFile != "" {
		pem, err := os.ReadFile(c.TLS.CAFile)
		if err != nil {
			return o, fmt.Errorf("redis.tls.ca_file: %w", err)
		}
		o.TLS.RootCAs = x509.NewCertPool()
		if !o.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return o, fmt.Errorf("redis.tls.ca_file: no certificate in %s: must be PEM", c.TLS.CAFile)
		}
	}
	if c.TLS.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLS.CertFile, c.TLS.KeyFile)
		if err != nil {
			return o, fmt.Errorf("redis.tls.cert_file and redis.tls.key_file: %w", err)
		}
		o.TLS.Certificates = []tls.Certificate{pair}
	}
	return o, nil
}

// OpenPostgres opens the configured database, with the password in its file and the quotas of tenants.
func OpenPostgres(c *config.Config) (*pgrules.DB, error) {
	password, err := config.ReadSecret(c.Postgres.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("postgres.password_file: %w", err)
	}
	db, err := pgrules.Open(c.Postgres.Address, string(password))
	if err != nil {
		return nil, fmt.Errorf("postgres.address: %w", err)
	}
	db.SetQuotas(c.Tenants)
	return db, nil
}
