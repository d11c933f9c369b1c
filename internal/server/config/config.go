// Package config reads the server's config file: listeners, Redis, rules, and which sources of identity are trusted. It
// defines every key, its default and its valid values, and reports all problems of a file at once.
//
// It starts nothing and connects to nothing. It holds no secrets except a password in redis.address or postgres.address: the
// other secrets are in files, of which it keeps the paths.
package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/ratelimitdraft"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/yamldoc"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/storewrap"
)

// Config is the server's configuration. Paths are absolute or relative to the working directory, not to the config file.
type Config struct {
	Listen  Listen
	Callers Callers
	// Store selects where the counters are. With StoreMemory, Redis has its defaults and is not used.
	Store  Store
	Redis  Redis
	Memory Memory
	// Rules lists rule files and directories. It is empty if the rules are in Postgres.
	Rules    []string
	Postgres Postgres
	Regions  Regions
	// AllowNoRules makes a server without any rule ready. Such a server allows every request.
	AllowNoRules bool
	// LastGoodFile stores the last valid rules; if it is "", they do not survive a restart.
	LastGoodFile string
	// Mode is the strictest mode of any rule: a rule with a stricter mode runs in this one.
	Mode headgate.Mode
	// Nodes is the minimum number of servers that share the limits while Redis is unavailable. LocalShare is the percentage
	// of its share that each server then allows.
	Nodes, LocalShare int
	Identity          Identity
	// Headers selects the response headers that show clients their limits; the zero value selects none.
	Headers      limitfields.Choice
	ShowSubjects ShowSubjects
	// AdminTokensFile contains the tokens of the admin API's users; "" means that there are none.
	AdminTokensFile string
	AdminJWT        AdminJWT
	// Tenants limits what the editors of one tenant may store in Postgres.
	Tenants pgrules.Quotas
	Tracing Tracing
	// SecretFile contains the secret that is mixed into subjects; "" means none.
	SecretFile string
}

// Listen contains the addresses of the listeners; "" turns a listener off.
type Listen struct {
	HTTP, GRPC, Ops, Admin string
	// Regions is for the servers of other regions; it is off if and only if there are none.
	Regions string
	// AllowRefunds selects the listeners whose callers may refund units.
	AllowRefunds struct{ HTTP, GRPC bool }
	// TLS applies to all listeners except Ops and Regions.
	TLS ListenTLS
}

// Callers restricts who may call listen.http and listen.grpc. A caller must meet every requirement given here, and present a
// certificate of ListenTLS.ClientCAFile if that is set.
type Callers struct {
	// TokensFile contains the hashes of callers' tokens.
	TokensFile string
	// Names lists DNS names and URIs. A caller's certificate must contain one of them.
	Names []string
	// Open allows any caller on a listener that is reachable from other hosts.
	Open bool
}

// ListenTLS is the TLS configuration of the listeners. It is off without a CertFile; KeyFile is set if CertFile is. If
// ClientCAFile is set, clients need a certificate.
type ListenTLS struct {
	CertFile, KeyFile, ClientCAFile string
}

// Store names a store of the counters.
type Store string

// StoreMemory keeps the counters in the server's memory: one server, whose counters start at zero when it restarts.
const (
	StoreRedis  Store = "redis"
	StoreMemory Store = "memory"
)

// Memory is the store of the counters in the server's memory.
type Memory struct {
	// MaxCounters is the largest number of counters.
	MaxCounters int
}

// Redis is the connection to the store of the counters. Address may contain a password and must not be logged: Settings
// returns it without the password.
type Redis struct {
	Address, Username, PasswordFile, Namespace string
	// Deadline is how long a decision waits for Redis.
	Deadline time.Duration
	TLS      RedisTLS
}

// RedisTLS is the TLS configuration of the connection to Redis. It is enabled if any of its other fields is set, or if the
// address begins with rediss://.
type RedisTLS struct {
	Enabled                               bool
	CAFile, CertFile, KeyFile, ServerName string
}

// Postgres is the database of rules, overrides and exemptions, if they are not in files. Address may contain a password, as
// that of Redis.
type Postgres struct {
	Address, PasswordFile string
}

// Identity contains the options of package identity, with the path of a file instead of JWT.Secret.
type Identity struct {
	identity.Options
	JWTSecretFile string
}

// AdminJWT configures which JWTs are accepted by the admin API: none if Algorithms is empty.
type AdminJWT struct {
	identity.JWT
	// RoleClaim, TenantClaim and NameClaim are names of claims. Without a TenantClaim, no caller is bound to a tenant.
	RoleClaim, TenantClaim, NameClaim string
}

// ShowSubjects selects how subjects are shown to operators.
type ShowSubjects string

// ShowClear shows the attributes that rules count by in clear text. API keys are shown as hashes in both cases.
const (
	ShowHash  ShowSubjects = "hash"
	ShowClear ShowSubjects = "clear"
)

// Tracing configures where spans are sent. Tracing is off if Address is empty.
type Tracing struct {
	Address string
	// Sample is the percentage of requests to trace, among those whose callers did not decide it.
	Sample float64
}

// Default returns the config of an empty file. A real file must also name rules.
func Default() *Config {
	c := &Config{
		Listen:  Listen{HTTP: "127.0.0.1:8080", GRPC: "127.0.0.1:8081", Ops: "127.0.0.1:8082", Admin: "127.0.0.1:8083"},
		Store:   StoreRedis,
		Memory:  Memory{MaxCounters: memstore.DefaultMaxEntries},
		Redis:   Redis{Address: "redis://127.0.0.1:6379", Namespace: "headgate", Deadline: storewrap.DefaultDeadline},
		Regions: Regions{HomeDeadline: defaultHomeDeadline, OnStoreLoss: AllowLost},
		Mode:    headgate.Enforce, Nodes: 1, LocalShare: 100, Headers: limitfields.Choice{Draft: true, Version: ratelimitdraft.Draft11, Legacy: true},
		ShowSubjects: ShowHash, Tenants: pgrules.DefaultQuotas(), Tracing: Tracing{Sample: 1},
	}
	c.Identity.ForwardedHeader = identity.XForwardedFor
	c.Identity.IPv6Prefix = 64
	c.Identity.JWT.Header = "Authorization"
	c.AdminJWT.RoleClaim, c.AdminJWT.NameClaim = "role", "sub"
	return c
}

// maxBytes is the maximum size of a config file.
const maxBytes = 1 << 20

// Load reads a config file. If the file is readable but invalid, the error is a yamldoc.Errors.
func Load(file string) (*Config, error) { return load(file, os.LookupEnv) }

func load(file string, lookup func(string) (string, bool)) (*Config, error) {
	data, err := yamldoc.ReadFile(file, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	var report yamldoc.Report
	s, problem := yamldoc.Source{Name: file, Data: data}.Check()
	if len(data) > maxBytes {
		s.Data = nil
		problem = &yamldoc.Error{File: file, Line: 1, Column: 1, Problem: "file larger than 1 MB: not a config"}
	}
	d := &decoder{
		dir: filepath.Dir(file), lookup: lookup,
		expanded: map[*yamldoc.Node]bool{}, unset: map[*yamldoc.Node]bool{}, written: map[string]*yamldoc.Node{},
	}
	d.Source, d.Report, d.NoValue = s, &report, noValue
	c := Default()
	if problem != nil {
		report.Add(0, problem)
	} else {
		d.document(c)
	}
	if report.Count() > 0 {
		return nil, masked(&report, s)
	}
	return c, nil
}

const writeRules = "rules: [/etc/headgate/rules/]"

// noValue maps keys to the remedy for a missing value.
var noValue = map[string]string{
	"rules":           "write " + writeRules,
	"address":         "write one, or remove the key for the default",
	"trusted_proxies": "write the networks of your proxies, [10.0.0.0/8], or remove the key to trust none",
}

// decoder reads a config file.
type decoder struct {
	yamldoc.Decoder
	dir      string
	lookup   func(string) (string, bool)
	expanded map[*yamldoc.Node]bool // visited texts; true if they contained variables
	unset    map[*yamldoc.Node]bool // texts with undefined variables, which are already reported
	root     *yamldoc.Node
	written  map[string]*yamldoc.Node // the values of keys and sections that the file contains
}

type field = yamldoc.Field[*decoder, Config]

func (d *decoder) document(c *Config) {
	documents, problems := yamldoc.Parse(d.Source)
	for _, p := range problems {
		d.Report.Add(0, p)
	}
	switch {
	case len(documents) == 0 && len(problems) == 0:
		d.BadAt(1, 1, "the file is empty: write at least the path of the rules: "+writeRules)
	case len(documents) > 1:
		d.Bad(documents[1], "more than one document: remove the --- above")
	}
	if len(documents) != 1 {
		return
	}
	root := documents[0]
	d.root = root
	d.expand(root)
	// Keys that begin with x- are ignored, as in rule files: they are for anchors and for other programs.
	d.section(root.Without(func(key string) bool { return strings.HasPrefix(key, "x-") }), "", c)
	d.check(c)
}

// section reads the keys below a prefix, such as "redis.".
func (d *decoder) section(n *yamldoc.Node, prefix string, c *Config) {
	what := "a config"
	if prefix != "" {
		what = strings.TrimSuffix(prefix, ".")
		d.written[what] = n
	}
	table := fieldsBelow(prefix)
	known := yamldoc.Keys(table)
	n = n.Without(func(key string) bool { return d.misplaced(n, key, prefix, known) })
	yamldoc.Fields(d, n, what, table, c)
}

// misplaced reports a key whose value belongs into a file or a flag, and returns whether it is one.
func (d *decoder) misplaced(n *yamldoc.Node, key, prefix string, known []string) bool {
	at, _ := n.Get(key)
	switch {
	case slices.Contains(known, key):
		return false
	case slices.Contains(known, key+"_file"):
		d.Bad(at.Key, "%s: secrets are not allowed in the config: store it in a file, and write %[1]s_file with its path", key)
	case prefix == "" && (key == "log_level" || key == "dev"):
		d.Bad(at.Key, "%s: not a config key: start the server with the flag --%s", key, strings.ReplaceAll(key, "_", "-"))
	default:
		return false
	}
	return true
}

func fieldsBelow(prefix string) []field {
	var table []field
	for i := range settings {
		s := &settings[i]
		rest, ok := strings.CutPrefix(s.key, prefix)
		if !ok {
			continue
		}
		name, _, deeper := strings.Cut(rest, ".")
		switch {
		case !deeper:
			table = append(table, field{Key: name, Read: func(d *decoder, n *yamldoc.Node, _ string, c *Config) {
				d.written[s.key] = n
				if !d.unset[n] {
					s.read(d, n, s.key, c)
				}
			}})
		case !slices.Contains(yamldoc.Keys(table), name):
			table = append(table, field{Key: name, Read: func(d *decoder, n *yamldoc.Node, _ string, c *Config) {
				d.section(n, prefix+name+".", c)
			}})
		}
	}
	return table
}

// at returns the node of a key, or of the section that it belongs to if the file does not contain the key.
func (d *decoder) at(key string) *yamldoc.Node { return d.root.Find(strings.Split(key, ".")) }

// path resolves a path relative to the directory of the config file.
func (d *decoder) path(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(d.dir, p)
}
