package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/callers"
	"github.com/headgate/headgate/internal/server/listen"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/server/tracing"
)

// adminLeeway is the accepted clock difference to the issuers of tokens for the admin API.
const adminLeeway = 10 * time.Second

// openTokens opens all sources of tokens for the admin API. The caller must call closeTokens when the server ends.
func (s *server) openTokens() (tokens adminapi.Authorities, closeTokens func(), err error) {
	c, closeTokens := s.config, func() {}
	if c.AdminTokensFile != "" {
		file, err := adminapi.ReadTokens(c.AdminTokensFile, s.Log)
		if err != nil {
			return nil, nil, fmt.Errorf("admin.tokens_file: %w", err)
		}
		tokens = append(tokens, file)
	}
	if j := c.AdminJWT; len(j.Algorithms) > 0 {
		j.Leeway = adminLeeway
		signed, err := identity.NewTokens(j.JWT, s.Log)
		if err != nil {
			return nil, nil, fmt.Errorf("admin.jwt: %w", err)
		}
		tokens = append(tokens, adminapi.JWT{Tokens: signed, Role: j.RoleClaim, Tenant: j.TenantClaim, Name: j.NameClaim})
		closeTokens = signed.Close
	}
	if s.db != nil {
		tokens = append(tokens, adminapi.Lookup(s.lookUp))
	}
	return tokens, closeTokens, nil
}

// lookUp finds the owner of a token in PostgreSQL.
func (s *server) lookUp(ctx context.Context, sum [sha256.Size]byte) (adminapi.Caller, bool, error) {
	t, err := s.db.TokenOf(ctx, sum)
	if errors.Is(err, pgrules.ErrNotFound) {
		return adminapi.Caller{}, false, nil
	}
	return adminapi.Caller{Name: t.Name, Role: adminapi.Role(t.Role), Tenant: t.Tenant, Subject: t.Subject}, err == nil, err
}

// addAdmin adds the admin API. Without tokens it is added only with --dev.
func (s *server) addAdmin(gate *callers.Gate, tokens adminapi.Authorities) {
	c := s.config
	switch {
	case c.Listen.Admin == "":
		return
	case len(tokens) == 0 && !s.Dev:
		s.Log.Info("the admin API is off because no tokens are configured: create one with headgate token create NAME, and " +
			"set admin.tokens_file")
		return
	}
	o := adminapi.Options{
		Tokens: tokens, Open: s.Dev, DB: s.db, RulesFrom: c.Rules, Normalize: s.resolver.Normalize, Log: s.Log,
		Top: s.activity.top.Query, Denials: s.activity.denied.Query, ReleaseOwn: s.activity.release.Query, ShowSubjects: string(c.ShowSubjects),
	}
	if s.redis != nil {
		o.Redis, o.Key = redact.Address(c.Redis.Address), s.redis.Key
	}
	if s.regions != nil {
		admin := &regionAdmin{s, s.activity.regions}
		o.Regions, o.Home = admin, admin.home
		o.Weights = s.regions.weights
	}
	s.addHTTP("admin", c.Listen.Admin, listen.NewHTTP(tracing.HTTP(adminapi.New(s.limiter, o)), s.secure(gate, "admin"), s.Log))
}
