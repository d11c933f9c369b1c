package config

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/yamldoc"
)

// Setting is a key with its value, which is a string, a bool, an int, a []string, or a map of names to keys and their values.
type Setting struct {
	Key   string
	Value any
}

// Settings returns all keys with their values, without secrets, in the order of the documentation. Keys that the store does not use
// are empty.
func (c *Config) Settings() []Setting {
	all := make([]Setting, len(settings))
	for i := range settings {
		all[i] = Setting{settings[i].key, settings[i].value(c)}
		if c.unused(settings[i].key) {
			all[i].Value = ""
		}
		if list, ok := all[i].Value.([]string); ok && list == nil {
			all[i].Value = []string{}
		}
	}
	return all
}

// unused reports whether a key belongs to the store that is not selected, or to regions if there are none.
func (c *Config) unused(key string) bool {
	if key == "regions.home_deadline" || key == "regions.on_store_loss" {
		return len(c.Regions.Members) == 0
	}
	if c.Store == StoreMemory {
		return strings.HasPrefix(key, "redis.") || key == "nodes" || key == "local_share"
	}
	return key == "memory.max_counters"
}

// setting defines a key: how it is read and how its value is shown.
type setting struct {
	key   string
	read  func(d *decoder, n *yamldoc.Node, key string, c *Config)
	value func(c *Config) any
}

var settings = []setting{
	listener("listen.http", func(c *Config) *string { return &c.Listen.HTTP }),
	listener("listen.grpc", func(c *Config) *string { return &c.Listen.GRPC }),
	listener("listen.ops", func(c *Config) *string { return &c.Listen.Ops }),
	listener("listen.admin", func(c *Config) *string { return &c.Listen.Admin }),
	listener("listen.regions", func(c *Config) *string { return &c.Listen.Regions }),
	file("listen.tokens_file", func(c *Config) *string { return &c.Callers.TokensFile }),
	yesNo("listen.open", func(c *Config) *bool { return &c.Callers.Open }),
	{"listen.allow_refunds", (*decoder).allowRefunds, func(c *Config) any {
		shown := []string{}
		if c.Listen.AllowRefunds.HTTP {
			shown = append(shown, "http")
		}
		if c.Listen.AllowRefunds.GRPC {
			shown = append(shown, "grpc")
		}
		return shown
	}},
	file("listen.tls.cert_file", func(c *Config) *string { return &c.Listen.TLS.CertFile }),
	file("listen.tls.key_file", func(c *Config) *string { return &c.Listen.TLS.KeyFile }),
	file("listen.tls.client_ca_file", func(c *Config) *string { return &c.Listen.TLS.ClientCAFile }),
	texts("listen.tls.client_names", checkName, func(c *Config) *[]string { return &c.Callers.Names }),
	word("store", []string{string(StoreRedis), string(StoreMemory)}, func(c *Config) *string { return (*string)(&c.Store) }),
	whole("memory.max_counters", 1_000, 1_000_000_000, func(c *Config) *int { return &c.Memory.MaxCounters }),
	address("redis.address", checkRedisAddress, func(c *Config) *string { return &c.Redis.Address }),
	text("redis.username", func(c *Config) *string { return &c.Redis.Username }),
	file("redis.password_file", func(c *Config) *string { return &c.Redis.PasswordFile }),
	checked("redis.namespace", checkNamespace, func(c *Config) *string { return &c.Redis.Namespace }),
	duration("redis.deadline", time.Millisecond, time.Second, "1ms to 1s", func(c *Config) *time.Duration { return &c.Redis.Deadline }),
	yesNo("redis.tls.enabled", func(c *Config) *bool { return &c.Redis.TLS.Enabled }),
	file("redis.tls.ca_file", func(c *Config) *string { return &c.Redis.TLS.CAFile }),
	file("redis.tls.cert_file", func(c *Config) *string { return &c.Redis.TLS.CertFile }),
	file("redis.tls.key_file", func(c *Config) *string { return &c.Redis.TLS.KeyFile }),
	text("redis.tls.server_name", func(c *Config) *string { return &c.Redis.TLS.ServerName }),
	{"rules", (*decoder).rules, func(c *Config) any { return c.Rules }},
	address("postgres.address", checkPostgresAddress, func(c *Config) *string { return &c.Postgres.Address }),
	file("postgres.password_file", func(c *Config) *string { return &c.Postgres.PasswordFile }),
	checked("regions.name", checkRegionName, func(c *Config) *string { return &c.Regions.Name }),
	{"regions.members", (*decoder).members, func(c *Config) any { return c.Regions.shown() }},
	word("regions.on_store_loss", []string{string(AllowLost), string(DenyLost)}, func(c *Config) *string { return (*string)(&c.Regions.OnStoreLoss) }),
	duration("regions.home_deadline", 10*time.Millisecond, 5*time.Second, "10ms to 5s", func(c *Config) *time.Duration { return &c.Regions.HomeDeadline }),
	file("regions.tls.cert_file", func(c *Config) *string { return &c.Regions.TLS.CertFile }),
	file("regions.tls.key_file", func(c *Config) *string { return &c.Regions.TLS.KeyFile }),
	file("regions.tls.ca_file", func(c *Config) *string { return &c.Regions.TLS.CAFile }),
	yesNo("allow_no_rules", func(c *Config) *bool { return &c.AllowNoRules }),
	{"last_good_file", (*decoder).lastGoodFile, func(c *Config) any { return c.LastGoodFile }},
	{"mode", (*decoder).mode, func(c *Config) any { return c.Mode.String() }},
	whole("nodes", 1, 100_000, func(c *Config) *int { return &c.Nodes }),
	percentage("local_share", 1, func(c *Config) *int { return &c.LocalShare }),
	{"identity.trusted_proxies", (*decoder).proxies, func(c *Config) any {
		shown := []string{}
		for _, network := range c.Identity.TrustedProxies {
			shown = append(shown, network.String())
		}
		return shown
	}},
	whole("identity.trusted_hops", 0, 63, func(c *Config) *int { return &c.Identity.TrustedHops }),
	yesNo("identity.trust_unix", func(c *Config) *bool { return &c.Identity.TrustUnix }),
	word("identity.forwarded_header", []string{identity.XForwardedFor, identity.Forwarded},
		func(c *Config) *string { return &c.Identity.ForwardedHeader }),
	whole("identity.ipv6_prefix", 1, 128, func(c *Config) *int { return &c.Identity.IPv6Prefix }),
	checked("identity.api_key.header", checkHeader, func(c *Config) *string { return &c.Identity.APIKey.Header }),
	text("identity.api_key.query", func(c *Config) *string { return &c.Identity.APIKey.Query }),
	texts("identity.jwt.algorithms", checkAlgorithm, func(c *Config) *[]string { return &c.Identity.JWT.Algorithms }),
	file("identity.jwt.secret_file", func(c *Config) *string { return &c.Identity.JWTSecretFile }),
	file("identity.jwt.key_file", func(c *Config) *string { return &c.Identity.JWT.KeyFile }),
	address("identity.jwt.key_url", checkKeyURL, func(c *Config) *string { return &c.Identity.JWT.KeyURL }),
	text("identity.jwt.issuer", func(c *Config) *string { return &c.Identity.JWT.Issuer }),
	texts("identity.jwt.audience", nil, func(c *Config) *[]string { return &c.Identity.JWT.Audience }),
	duration("identity.jwt.leeway", 0, 5*time.Minute, "0s to 5m", func(c *Config) *time.Duration { return &c.Identity.JWT.Leeway }),
	yesNo("identity.jwt.allow_no_expiry", func(c *Config) *bool { return &c.Identity.JWT.AllowNoExpiry }),
	checked("identity.jwt.header", checkHeader, func(c *Config) *string { return &c.Identity.JWT.Header }),
	texts("identity.user", checkSource, func(c *Config) *[]string { return &c.Identity.User }),
	texts("identity.service_account", checkSource, func(c *Config) *[]string { return &c.Identity.ServiceAccount }),
	texts("identity.tenant", checkSource, func(c *Config) *[]string { return &c.Identity.Tenant }),
	texts("identity.tier", checkSource, func(c *Config) *[]string { return &c.Identity.Tier }),
	texts("identity.region", checkSource, func(c *Config) *[]string { return &c.Identity.Region }),
	{"headers", (*decoder).headers, func(c *Config) any { return wordsOf(c.Headers) }},
	word("show_subjects", []string{string(ShowHash), string(ShowClear)},
		func(c *Config) *string { return (*string)(&c.ShowSubjects) }),
	file("admin.tokens_file", func(c *Config) *string { return &c.AdminTokensFile }),
	texts("admin.jwt.algorithms", checkPublicAlgorithm, func(c *Config) *[]string { return &c.AdminJWT.Algorithms }),
	file("admin.jwt.key_file", func(c *Config) *string { return &c.AdminJWT.KeyFile }),
	address("admin.jwt.key_url", checkKeyURL, func(c *Config) *string { return &c.AdminJWT.KeyURL }),
	text("admin.jwt.issuer", func(c *Config) *string { return &c.AdminJWT.Issuer }),
	texts("admin.jwt.audience", nil, func(c *Config) *[]string { return &c.AdminJWT.Audience }),
	text("admin.jwt.claims.role", func(c *Config) *string { return &c.AdminJWT.RoleClaim }),
	text("admin.jwt.claims.tenant", func(c *Config) *string { return &c.AdminJWT.TenantClaim }),
	text("admin.jwt.claims.name", func(c *Config) *string { return &c.AdminJWT.NameClaim }),
	whole("tenants.max_rules", 0, 10_000, func(c *Config) *int { return &c.Tenants.Rules }),
	whole("tenants.max_limits", 0, 100_000, func(c *Config) *int { return &c.Tenants.Limits }),
	whole("tenants.max_condition_steps", 0, 1_000_000_000, func(c *Config) *int { return &c.Tenants.ConditionSteps }),
	whole("tenants.max_exceptions", 0, 10_000_000, func(c *Config) *int { return &c.Tenants.Exceptions }),
	whole("tenants.max_metered_subjects", 0, 10_000_000, func(c *Config) *int { return &c.Tenants.MeteredSubjects }),
	whole("tenants.max_changes_per_day", 0, 100_000_000, func(c *Config) *int { return &c.Tenants.ChangesPerDay }),
	address("tracing.address", checkCollector, func(c *Config) *string { return &c.Tracing.Address }),
	percentage("tracing.sample", 0, func(c *Config) *float64 { return &c.Tracing.Sample }),
	file("secret_file", func(c *Config) *string { return &c.SecretFile }),
}

var modes = []headgate.Mode{headgate.Enforce, headgate.Shadow, headgate.Off}

// off is the value that turns a listener or the headers off.
const off = "off"

// one returns a setting with a single value. If read returns false, the default stays.
func one[T any](key string, of func(*Config) *T, read func(d *decoder, n *yamldoc.Node, key string) (T, bool)) setting {
	return setting{
		key,
		func(d *decoder, n *yamldoc.Node, key string, c *Config) {
			if v, ok := read(d, n, key); ok {
				*of(c) = v
			}
		},
		func(c *Config) any { return *of(c) },
	}
}

func listener(key string, of func(*Config) *string) setting {
	s := one(key, of, (*decoder).listener)
	s.value = func(c *Config) any { return cmp.Or(*of(c), off) }
	return s
}

func text(key string, of func(*Config) *string) setting { return one(key, of, (*decoder).notEmpty) }

// file returns a setting whose value is the path of an existing file.
func file(key string, of func(*Config) *string) setting {
	return one(key, of, func(d *decoder, n *yamldoc.Node, key string) (string, bool) {
		path, ok := d.notEmpty(n, key)
		if path = d.path(path); ok {
			d.mustBeFile(n, key, path)
		}
		return path, ok
	})
}

// checked returns a setting for a text that check validates. check returns a message that begins with the key, or "".
func checked(key string, check func(key, s string) string, of func(*Config) *string) setting {
	return one(key, of, func(d *decoder, n *yamldoc.Node, key string) (string, bool) {
		s, ok := d.notEmpty(n, key)
		if !ok {
			return "", false
		}
		problem := check(key, s)
		if problem != "" {
			d.Bad(n, "%s", problem)
		}
		return s, problem == ""
	})
}

// address returns a checked setting that is shown without credentials.
func address(key string, check func(key, s string) string, of func(*Config) *string) setting {
	s := checked(key, check, of)
	s.value = func(c *Config) any { return redact.Address(*of(c)) }
	return s
}

const headerLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

func word(key string, words []string, of func(*Config) *string) setting {
	return one(key, of, func(d *decoder, n *yamldoc.Node, key string) (string, bool) {
		if i := d.Enum(n, key, words); i >= 0 {
			return words[i], true
		}
		return "", false
	})
}

// texts returns a setting for a text or a list of texts. If check is not nil, it returns the problem of one text, or "".
func texts(key string, check func(string) string, of func(*Config) *[]string) setting {
	return setting{
		key,
		func(d *decoder, n *yamldoc.Node, key string, c *Config) {
			*of(c) = nil
			d.each(n, key, func(n *yamldoc.Node, s string) {
				*of(c) = append(*of(c), s)
				if check == nil {
					return
				}
				if problem := check(s); problem != "" {
					d.Bad(n, "%s: %s", key, problem)
				}
			})
		},
		func(c *Config) any { return *of(c) },
	}
}

func whole(key string, minimum, maximum int64, of func(*Config) *int) setting {
	return one(key, of, func(d *decoder, n *yamldoc.Node, key string) (int, bool) {
		v := d.Int(d.as(n, yamldoc.Number), key, minimum, "")
		if v > maximum {
			d.Bad(n, "%s is %d: write %d or less", key, v, maximum)
		}
		return int(v), true
	})
}

// duration returns a setting for a duration from minimum to maximum. bounds is the text of both in messages.
func duration(key string, minimum, maximum time.Duration, bounds string, of func(*Config) *time.Duration) setting {
	s := one(key, of, func(d *decoder, n *yamldoc.Node, key string) (time.Duration, bool) {
		v := d.Duration(n, key)
		if v < minimum || v > maximum {
			d.Bad(n, "%s is %s: write %s", key, v, bounds)
		}
		return v, true
	})
	s.value = func(c *Config) any { return of(c).String() }
	return s
}

func yesNo(key string, of func(*Config) *bool) setting {
	return one(key, of, func(d *decoder, n *yamldoc.Node, key string) (bool, bool) {
		return d.Bool(d.as(n, yamldoc.Boolean), key), true
	})
}

// percentage returns a setting for a percentage from minimum to 100%, which must be whole if T is int.
func percentage[T int | float64](key string, minimum float64, of func(*Config) *T) setting {
	s := one(key, of, func(d *decoder, n *yamldoc.Node, key string) (T, bool) {
		v, ok := d.percent(n, key, minimum)
		if ok && float64(T(v)) != v {
			d.Bad(n, "%s is %q: write %v%% to 100%%", key, yamldoc.Shorten(n.Text), minimum)
		}
		return T(v), ok
	})
	s.value = func(c *Config) any { return strconv.FormatFloat(float64(*of(c)), 'f', -1, 64) + "%" }
	return s
}

// notEmpty reads a text that must not be empty.
func (d *decoder) notEmpty(n *yamldoc.Node, key string) (string, bool) {
	s, ok := d.Text(n, key)
	if ok && strings.TrimSpace(s) == "" {
		d.Bad(n, "%s is empty: write a value, or remove the key", key)
		return "", false
	}
	return s, ok
}

// items returns the items of a list, or the node itself, without those that contain undefined variables.
func (d *decoder) items(n *yamldoc.Node) []*yamldoc.Node {
	all := []*yamldoc.Node{n}
	if n.Kind == yamldoc.List {
		all = slices.Clone(n.Items)
	}
	return slices.DeleteFunc(all, func(item *yamldoc.Node) bool { return d.unset[item] })
}

// each calls read with each item of a list, or with a single text.
func (d *decoder) each(n *yamldoc.Node, key string, read func(n *yamldoc.Node, s string)) {
	if n.Kind == yamldoc.Mapping {
		d.Bad(n, "%s wants text or a list, not %s", key, n.Describe())
		return
	}
	for _, item := range d.items(n) {
		if s, ok := d.notEmpty(item, key); ok {
			read(item, s)
		}
	}
}

func (d *decoder) mode(n *yamldoc.Node, key string, c *Config) {
	words := make([]string, len(modes))
	for i, m := range modes {
		words[i] = m.String()
	}
	if i := d.Enum(n, key, words); i >= 0 {
		c.Mode = modes[i]
	}
}

func (d *decoder) percent(n *yamldoc.Node, key string, minimum float64) (float64, bool) {
	if n.Kind == yamldoc.Number {
		d.Bad(n, "%s is %s: write %[2]s%%, or another value from %v%% to 100%%", key, n.Text, minimum)
		return 0, false
	}
	s, ok := d.notEmpty(n, key)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(v >= minimum && v <= 100) || !strings.HasSuffix(s, "%") {
		d.Bad(n, "%s is %q: write %v%% to 100%%", key, yamldoc.Shorten(s), minimum)
		return 0, false
	}
	return v, true
}

// proxies reads networks. A single address is a network of one.
func (d *decoder) proxies(n *yamldoc.Node, key string, c *Config) {
	d.each(n, key, func(n *yamldoc.Node, s string) {
		p, err := netip.ParsePrefix(s)
		if a, err2 := netip.ParseAddr(s); err2 == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch {
		case err != nil:
			d.Bad(n, "%s: %q is not a network: write one like 10.0.0.0/8 or 2001:db8::/32", key, yamldoc.Shorten(s))
		case p.Bits() == 0:
			d.Bad(n, "%s: %s trusts every client, which could then claim any address: write the networks of your proxies, or "+
				"set trusted_hops", key, p)
		default:
			c.Identity.TrustedProxies = append(c.Identity.TrustedProxies, p)
		}
	})
}
