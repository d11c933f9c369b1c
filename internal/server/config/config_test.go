package config

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/ratelimitdraft"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/internal/yamldoc"
	"github.com/headgate/headgate/memstore"
)

var update = flag.Bool("update", false, "update the golden files")

// clearPassword is the password in testdata. No output may contain it.
const clearPassword = "hunter2"

var variables = map[string]string{
	"HOST": "redis.internal", "YES": "true", "BITS": "56", "HOPS": "two", "PASSWORD": clearPassword, "REGION": "eu",
}

func lookup(name string) (string, bool) {
	value, ok := variables[name]
	return value, ok
}

// TestGoldenBad compares every message with its golden file.
func TestGoldenBad(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			_, err := load(file, lookup)
			if _, ok := errors.AsType[yamldoc.Errors](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			got := err.Error() + "\n"
			if *update {
				if err := os.WriteFile(file+".txt", []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file + ".txt")
			if err != nil {
				t.Fatalf("%v; write it with -update", err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
			if strings.Contains(got, clearPassword) {
				t.Errorf("the message contains the password:\n%s", got)
			}
		})
	}
}

// TestEveryKey loads every_key.yaml, which sets each key to a value that is not its default, except keys that exclude another.
func TestEveryKey(t *testing.T) {
	t.Parallel()
	got, err := load("testdata/good/every_key.yaml", lookup)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, secret := "testdata/files/cert.pem", "testdata/files/key.pem", "testdata/files/secret"
	want := &Config{
		Listen: Listen{
			HTTP: "127.0.0.1:9080", GRPC: ":9081", Admin: "[::]:9083", Regions: ":9084", AllowRefunds: struct{ HTTP, GRPC bool }{true, true},
			TLS: ListenTLS{CertFile: cert, KeyFile: key, ClientCAFile: cert},
		},
		Callers: Callers{TokensFile: secret, Names: []string{"gateway.example.com", "spiffe://example.com/gateway"}},
		Store:   StoreRedis, Memory: Memory{MaxCounters: memstore.DefaultMaxEntries},
		Redis: Redis{
			Address: "sentinel://redis.internal:26379/main", Username: "headgate", PasswordFile: secret, Namespace: "team-a", Deadline: 25 * time.Millisecond,
			TLS: RedisTLS{Enabled: true, CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "redis.example.com"},
		},
		Regions: Regions{
			Name: "eu",
			Members: []RegionMember{
				{Name: "ap-south_1", Address: "10.1.2.3:443", Weight: 1},
				{Name: "eu", Address: "[2001:db8::1]:8084", Weight: 56},
				{Name: "us", Address: "headgate.eu.example.com:8084", Weight: 2},
			},
			HomeDeadline: time.Second,
			TLS:          RegionsTLS{CertFile: cert, KeyFile: key, CAFile: cert}, OnStoreLoss: DenyLost,
		},
		Rules: []string{"testdata/files/rules"}, AllowNoRules: true, LastGoodFile: "testdata/files/kept", Mode: headgate.Shadow, Headers: limitfields.Choice{Draft: true, Version: ratelimitdraft.DraftNext, Legacy: true, OlderDraft: true},
		Nodes: 12, LocalShare: 20,
		Identity: Identity{
			Options: identity.Options{
				TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::1/128")},
				TrustUnix:      true, ForwardedHeader: identity.Forwarded, IPv6Prefix: 56,
				APIKey: identity.APIKey{Header: "X-API-Key", Query: "a${key}"},
				JWT: identity.JWT{
					Algorithms: []string{"HS256"}, Issuer: "https://id.example.com", Audience: []string{"api", "56"},
					Leeway: 30 * time.Second, AllowNoExpiry: true, Header: "X-Token",
				},
				User: []string{"claim.sub"}, ServiceAccount: []string{"claim.client_id"},
				Tenant: []string{"claim.org.id", "header.x-tenant"}, Tier: []string{"claim.plan"},
				Region: []string{"header.x-region"},
			},
			JWTSecretFile: secret,
		},
		ShowSubjects: ShowClear, Tracing: Tracing{Address: "https://traces.example.com/otlp", Sample: 0.25},
		Tenants:         pgrules.Quotas{Rules: 20, Limits: 40, ConditionSteps: 200_000, MeteredSubjects: 500, ChangesPerDay: 700},
		AdminTokensFile: secret, SecretFile: secret,
		AdminJWT: AdminJWT{
			JWT: identity.JWT{
				Algorithms: []string{"ES256"}, KeyFile: cert, Issuer: "https://id.example.com", Audience: []string{"headgate"},
			},
			RoleClaim: "headgate.role", TenantClaim: "org.id", NameClaim: "email",
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	defaults := Default().Settings()
	for i, s := range got.Settings() {
		exclusive := []string{"listen.open", "store", "memory.max_counters", "identity.trusted_hops", "identity.jwt.key_file", "identity.jwt.key_url", "admin.jwt.key_url", "postgres.address", "postgres.password_file"}
		if reflect.DeepEqual(s, defaults[i]) != slices.Contains(exclusive, s.Key) {
			t.Errorf("%s is %v", s.Key, s.Value)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "rules"), 0o700),
		os.WriteFile(filepath.Join(dir, "secret"), []byte("0123456789abcdef0123456789abcdef\n"), 0o600),
		os.WriteFile(file, []byte(text), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// TestDefault loads a file with only the required key.
func TestDefault(t *testing.T) {
	t.Parallel()
	file := write(t, "rules: rules\n")
	got, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Rules = []string{filepath.Join(filepath.Dir(file), "rules")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	got, err := Load(write(t, "rules: rules\nstore: memory\nmemory: {max_counters: 5000}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Store != StoreMemory || got.Memory.MaxCounters != 5000 {
		t.Errorf("%s with %d counters", got.Store, got.Memory.MaxCounters)
	}
}

// TestLastGoodFileReplacesMissingRules checks that a server whose rule files are missing can start with last_good_file.
func TestLastGoodFileReplacesMissingRules(t *testing.T) {
	t.Parallel()
	file := write(t, "rules: gone\nlast_good_file: kept\n")
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "gone not found") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err != nil {
		t.Error(err)
	}
}

func TestPasswordInAddress(t *testing.T) {
	t.Parallel()
	c, err := load(write(t, "rules: rules\nredis: {address: \"rediss://me:${PASSWORD}@localhost:6379\"}\n"), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if c.Redis.Address != "rediss://me:"+clearPassword+"@localhost:6379" || !c.Redis.TLS.Enabled {
		t.Errorf("%+v", c.Redis)
	}
	for _, s := range c.Settings() {
		text, _ := s.Value.(string)
		if strings.Contains(text, clearPassword) || s.Key == "redis.address" && text != "rediss://***@localhost:6379" {
			t.Errorf("%s is shown as %s", s.Key, text)
		}
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	var all yamldoc.Errors
	if _, err := Load(filepath.Join(t.TempDir(), "config.yaml")); !errors.Is(err, os.ErrNotExist) || errors.As(err, &all) {
		t.Error(err)
	}
	large := write(t, strings.Repeat("#", maxBytes+1))
	if _, err := Load(large); !errors.As(err, &all) || !strings.Contains(err.Error(), "1 MB") {
		t.Error(err)
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"address: redis://me:hunter2@host:1": "address: redis://**********@host:1",
		"address: 'hunter2@host'":            "address: '*******@host'",
		"password: hunter2":                  "password: *******",
		"{\"password\": \"hünter2\"}":        "{\"password\": \"*********",
		"password_file: /run/secrets/redis":  "password_file: /run/secrets/redis",
		"api_key: {header: X-API-Key}":       "api_key: {header: X-API-Key}",
		"address: redis://host:1 # a\nb: c@": "address: redis://host:1 # a\nb: c@",
	} {
		if got := mask(text); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// TestRegionsOnOneHost loads what a test of several regions uses, and the default of listen.regions.
func TestRegionsOnOneHost(t *testing.T) {
	t.Parallel()
	files, err := filepath.Abs("testdata/files")
	if err != nil {
		t.Fatal(err)
	}
	tls := "\n  tls: {cert_file: " + files + "/cert.pem, key_file: " + files + "/key.pem, ca_file: " + files + "/cert.pem}\n"
	for text, want := range map[string]string{
		"listen: {regions: 127.0.0.1:9084}\nregions:\n  name: a\n  members: {a: {address: 127.0.0.1:9084}, b: {address: localhost:9085}}": "127.0.0.1:9084",
		"regions:\n  name: b\n  members: {a: {address: 10.0.0.1:9084}, b: {address: 192.168.1.1:9084}}":                                   ":8084",
	} {
		c, err := Load(write(t, "rules: rules\n"+text+tls))
		if err != nil {
			t.Fatal(err)
		}
		if c.Listen.Regions != want {
			t.Errorf("listen.regions is %s, want %s", c.Listen.Regions, want)
		}
	}
}

func TestFractions(t *testing.T) {
	t.Parallel()
	r := Regions{Members: []RegionMember{{Name: "a", Weight: 1}, {Name: "b", Weight: 2}, {Name: "c", Weight: 2}}}
	want := []headgate.Fraction{{From: 0, To: 1, Of: 5}, {From: 1, To: 3, Of: 5}, {From: 3, To: 5, Of: 5}}
	if got := r.Fractions(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
