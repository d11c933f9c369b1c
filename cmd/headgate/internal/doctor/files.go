package doctor

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server/config"
)

const (
	othersRead  fs.FileMode = 0o004
	othersWrite fs.FileMode = 0o002
	// certificateWarning is how long before its end a certificate is reported.
	certificateWarning = 14 * 24 * time.Hour
)

// CheckFiles examines who may read secrets and who may change rules and tokens, and when certificates expire.
func CheckFiles(c *config.Config, configFile string, now time.Time) []Finding {
	var all []Finding
	add := func(check string, status Status, detail, remedy string) {
		all = append(all, Finding{Section: SectionFiles, Check: check, Status: status, Detail: detail, Remedy: remedy})
	}
	mode := func(file string) fs.FileMode {
		info, err := os.Stat(file)
		if file == "" || err != nil { // a missing file is a problem of the config or the rules
			return 0
		}
		if info.IsDir() && info.Mode()&fs.ModeSticky != 0 {
			return info.Mode().Perm() &^ othersWrite
		}
		return info.Mode().Perm()
	}
	checked := 0
	secret := func(key, file string) {
		if file == "" {
			return
		}
		checked++
		switch m := mode(file); {
		case m&othersWrite != 0:
			add(key, Problem, fmt.Sprintf("%s (mode %#o) can be changed by every user of this host", file, m), "chmod o-rwx "+file)
		case m&othersRead != 0:
			add(key, Warning, fmt.Sprintf("%s (mode %#o) can be read by every user of this host", file, m), "chmod o-rwx "+file)
		}
	}
	secret("redis.password_file", c.Redis.PasswordFile)
	secret("redis.tls.key_file", c.Redis.TLS.KeyFile)
	secret("postgres.password_file", c.Postgres.PasswordFile)
	secret("listen.tls.key_file", c.Listen.TLS.KeyFile)
	secret("identity.jwt.secret_file", c.Identity.JWTSecretFile)
	secret("secret_file", c.SecretFile)
	if redact.HasPassword(c.Redis.Address) || redact.HasPassword(c.Postgres.Address) {
		secret("config", configFile)
	}
	// Hashes of tokens and rules may be read, but those who change them are operators.
	changed := [][2]string{{"config", configFile}, {"admin.tokens_file", c.AdminTokensFile}, {"listen.tokens_file", c.Callers.TokensFile}}
	for _, path := range c.Rules {
		changed = append(changed, [2]string{"rules", path})
	}
	for _, pair := range changed {
		if pair[1] == "" {
			continue
		}
		checked++
		if m := mode(pair[1]); m&othersWrite != 0 {
			add(pair[0], Problem, fmt.Sprintf("%s (mode %#o) can be changed by every user of this host, who could lift any limit", pair[1], m), "chmod o-w "+pair[1])
		}
	}
	if c.Listen.TLS.CertFile != "" {
		checked++
		if status, detail := certificate(&c.Listen.TLS, now); status != OK {
			add("listen.tls.cert_file", status, detail, "replace the file; new connections use it at once")
		}
	}
	switch {
	case c.LastGoodFile != "":
		checked++
		if dir := filepath.Dir(c.LastGoodFile); !writable(dir) {
			add("last_good_file", Warning, dir+" is not writable for this user: if the server runs as this user, the last valid rules are not saved", "chown it to the user of the server")
		}
	case c.Postgres.Address != "":
		add("last_good_file", Warning, "not set: a node that starts while PostgreSQL is unavailable has no rules", "last_good_file: /var/lib/headgate/last-good.json")
	}
	if len(all) == 0 && checked > 0 {
		add("permissions", OK, "secrets are readable, and rules and tokens writable, for their owner and group only", "")
	}
	return all
}

// certificate returns whether the certificate of the listeners is about to expire.
func certificate(t *config.ListenTLS, now time.Time) (Status, string) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return Problem, err.Error()
	}
	end := pair.Leaf.NotAfter
	switch left := end.Sub(now); {
	case left <= 0:
		return Problem, t.CertFile + " expired at " + end.UTC().Format(time.RFC3339) + ": callers reject the connection"
	case left < certificateWarning:
		return Warning, fmt.Sprintf("%s expires in %d days, at %s", t.CertFile, int(left.Hours()/24), end.UTC().Format(time.RFC3339))
	}
	return OK, ""
}

// writable reports whether this user can create a file in a directory.
func writable(dir string) bool {
	file, err := os.CreateTemp(dir, ".headgate-doctor-*")
	if err != nil {
		return false
	}
	_ = file.Close()
	return os.Remove(file.Name()) == nil
}
