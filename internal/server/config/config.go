// Package config reads the server's config: which addresses to listen on, where Redis and the rules are, whom to believe
// about who is calling. It knows every key, its default and what makes no sense, and says all that is wrong at once.
//
// It starts nothing and connects to nothing, and holds no secret but one that stands in redis.address: of the others it
// knows the files.
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
	"github.com/headgate/headgate/storewrap"
)

// Config is what the server is told. Paths are absolute or relative to the working directory, not to the file.
type Config struct {
	Listen  Listen
	Callers Callers
	Redis   Redis
	// Rules are files and directories; none if they are in Postgres.
	Rules    []string
	Postgres Postgres
	// AllowNoRules makes a server without any rule ready. It allows every request.
	AllowNoRules bool
	// LastGoodFile is a file for the last good rules; "" means that they do not survive a restart.
	LastGoodFile string
	// Mode is the most that any rule may do.
	Mode headgate.Mode
	// Nodes is the least number of servers that share the limits while Redis is away, and LocalShare how many percent of
	// its share each of them admits then.
	Nodes, LocalShare int
	Identity          Identity
	// Headers says which response headers tell clients about their limits; the zero value is none.
	Headers      limitfields.Choice
	ShowSubjects ShowSubjects
	// AdminTokensFile has the tokens of those who may use the admin API; "" means that there are none.
	AdminTokensFile string
	AdminJWT        AdminJWT
	// Tenants is what editors who are bound to a tenant may store in Postgres.
	Tenants pgrules.Quotas
	Tracing Tracing
	// SecretFile has the secret that is mixed into subjects; "" means none.
	SecretFile string
}

// Listen has the addresses of the listeners; "" means that one is off.
type Listen struct {
	HTTP, GRPC, Ops, Admin string
	// AllowRefunds says whose callers may give units back.
	AllowRefunds struct{ HTTP, GRPC bool }
	// TLS is for all of them but Ops.
	TLS ListenTLS
}

// Callers says who may ask at listen.http and listen.grpc: whoever has all that is given here and a certificate of
// ListenTLS.ClientCAFile, if there is one.
type Callers struct {
	// TokensFile has the hashes of callers' tokens.
	TokensFile string
	// Names are those of which a caller's certificate must have one.
	Names []string
	// Open says that everybody who reaches a listener beyond loopback may ask.
	Open bool
}

// ListenTLS is off unless there is a CertFile, and then there is a KeyFile. With ClientCAFile clients need a
// certificate.
type ListenTLS struct {
	CertFile, KeyFile, ClientCAFile string
}

// Redis says where the counters are. Its address may have a password, so it is not for logs: Settings has it without.
type Redis struct {
	Address, Username, PasswordFile, Namespace string
	// Deadline is how long a decision waits for it.
	Deadline time.Duration
	TLS      RedisTLS
}

// RedisTLS is towards Redis. It is enabled if any of the rest is given, or the address is rediss://.
type RedisTLS struct {
	Enabled                               bool
	CAFile, CertFile, KeyFile, ServerName string
}

// Postgres says where rules, overrides and exemptions are, if they are not in files. Its address may have a password, as that of Redis.
type Postgres struct {
	Address, PasswordFile string
}

// Identity is the options of package identity, with the file of a secret instead of JWT.Secret.
type Identity struct {
	identity.Options
	JWTSecretFile string
}

// AdminJWT says which tokens of others are believed about who may use the admin API: none without Algorithms.
type AdminJWT struct {
	identity.JWT
	// RoleClaim, TenantClaim and NameClaim are claims; without TenantClaim all callers are of no tenant.
	RoleClaim, TenantClaim, NameClaim string
}

// ShowSubjects says what operators are shown of those who are counted.
type ShowSubjects string

// In clear text are the attributes that rules count by; an API key is a hash in any case.
const (
	ShowHash  ShowSubjects = "hash"
	ShowClear ShowSubjects = "clear"
)

// Tracing says where traces go: nowhere if the address is empty.
type Tracing struct {
	Address string
	// Sample is how many percent of the requests are traced whose callers have not decided that.
	Sample float64
}

// Default is the config of an empty file, but that a file must name rules.
func Default() *Config {
	c := &Config{
		Listen: Listen{HTTP: "127.0.0.1:8080", GRPC: "127.0.0.1:8081", Ops: "127.0.0.1:8082", Admin: "127.0.0.1:8083"},
		Redis:  Redis{Address: "redis://127.0.0.1:6379", Namespace: "headgate", Deadline: storewrap.DefaultDeadline},
		Mode:   headgate.Enforce, Nodes: 1, LocalShare: 100, Headers: limitfields.Choice{Draft: true, Version: ratelimitdraft.Draft11, Legacy: true},
		ShowSubjects: ShowHash, Tenants: pgrules.DefaultQuotas(), Tracing: Tracing{Sample: 1},
	}
	c.Identity.ForwardedHeader = identity.XForwardedFor
	c.Identity.IPv6Prefix = 64
	c.Identity.JWT.Header = "Authorization"
	c.AdminJWT.RoleClaim, c.AdminJWT.NameClaim = "role", "sub"
	return c
}

// maxBytes is how large a config may be. It has no lists that grow.
const maxBytes = 1 << 20

// Load reads a file. If it could be read but makes no sense, the error is a yamldoc.Errors.
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
		problem = &yamldoc.Error{File: file, Line: 1, Column: 1, Problem: "the file is larger than 1 MB: it is no config"}
	}
	d := &decoder{
		dir: filepath.Dir(file), lookup: lookup,
		seen: map[*yamldoc.Node]bool{}, unset: map[*yamldoc.Node]bool{}, written: map[string]*yamldoc.Node{},
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

// noValue is what to write for keys without a value.
var noValue = map[string]string{
	"rules":           "write " + writeRules,
	"address":         "write one, or remove the key for the default",
	"trusted_proxies": "write the networks of your proxies, [10.0.0.0/8], or remove the key to trust nobody",
}

// decoder reads a config.
type decoder struct {
	yamldoc.Decoder
	dir     string
	lookup  func(string) (string, bool)
	seen    map[*yamldoc.Node]bool // texts: whether they had variables in them
	unset   map[*yamldoc.Node]bool // texts with variables that have no value, of which that is told
	root    *yamldoc.Node
	written map[string]*yamldoc.Node // the values of keys and sections
}

type field = yamldoc.Field[*decoder, Config]

func (d *decoder) document(c *Config) {
	documents, problems := yamldoc.Parse(d.Source)
	for _, p := range problems {
		d.Report.Add(0, p)
	}
	switch {
	case len(documents) == 0 && len(problems) == 0:
		d.BadAt(1, 1, "the file is empty: a config says at least where the rules are: "+writeRules)
	case len(documents) > 1:
		d.Bad(documents[1], "a config is one document: remove the --- before this")
	}
	if len(documents) != 1 {
		return
	}
	root := documents[0]
	d.root = root
	d.expand(root)
	// Keys that begin with x- are for anchors and for other programs, as in rule files.
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
	n = n.Without(func(key string) bool { return d.elsewhere(n, key, prefix, known) })
	yamldoc.Fields(d, n, what, table, c)
}

// elsewhere notes a key whose value belongs into a file or a flag.
func (d *decoder) elsewhere(n *yamldoc.Node, key, prefix string, known []string) bool {
	at, _ := n.Get(key)
	switch {
	case slices.Contains(known, key):
		return false
	case slices.Contains(known, key+"_file"):
		d.Bad(at.Key, "%s itself does not stand in the config: put it into a file, and write %[1]s_file with the path", key)
	case prefix == "" && (key == "log_level" || key == "dev"):
		d.Bad(at.Key, "%s is a flag: start the server with --%s", key, strings.ReplaceAll(key, "_", "-"))
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

// at is where a key is written, or else the section that it belongs to.
func (d *decoder) at(key string) *yamldoc.Node { return d.root.Find(strings.Split(key, ".")) }

// path is relative to the config's directory.
func (d *decoder) path(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(d.dir, p)
}
