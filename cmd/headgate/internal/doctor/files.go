package doctor

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/wording"
)

const (
	othersRead  fs.FileMode = 0o004
	othersWrite fs.FileMode = 0o002
	// certificateWarning is how long before its end a certificate is reported.
	certificateWarning = 14 * 24 * time.Hour
)

// CheckFiles examines who may read secrets and who may change rules and tokens, and when certificates expire.
func CheckFiles(c *config.Config, configFile string, now time.Time) []Finding {
	f := &fileCheck{}
	f.secret("redis.password_file", c.Redis.PasswordFile)
	f.secret("redis.tls.key_file", c.Redis.TLS.KeyFile)
	f.secret("postgres.password_file", c.Postgres.PasswordFile)
	f.secret("listen.tls.key_file", c.Listen.TLS.KeyFile)
	f.secret("regions.tls.key_file", c.Regions.TLS.KeyFile)
	f.secret("identity.jwt.secret_file", c.Identity.JWTSecretFile)
	f.secret("secret_file", c.SecretFile)
	if redact.HasPassword(c.Redis.Address) || redact.HasPassword(c.Postgres.Address) {
		f.secret("config", configFile)
	}
	const lift = "who could lift any limit"
	f.trusted("config", configFile, lift)
	f.trusted("admin.tokens_file", c.AdminTokensFile, lift)
	f.trusted("listen.tokens_file", c.Callers.TokensFile, lift)
	f.trusted("admin.jwt.key_file", c.AdminJWT.KeyFile, lift)
	f.trusted("identity.jwt.key_file", c.Identity.JWT.KeyFile, "who could pass as any client")
	for _, path := range c.Rules {
		f.trusted("rules", path, lift)
		f.inDirectory("rules", path, lift)
	}
	if c.Listen.TLS.CertFile != "" {
		f.checked++
		if status, detail := certificate(&c.Listen.TLS, now); status != OK {
			f.add("listen.tls.cert_file", status, detail, "replace the file; new connections use it at once")
		}
	}
	switch {
	case c.LastGoodFile != "":
		const start = "who could replace the rules of the next start"
		dir := filepath.Dir(c.LastGoodFile)
		f.trusted("last_good_file", dir, start)
		f.trusted("last_good_file", c.LastGoodFile, start)
		if !writable(dir) {
			f.add("last_good_file", Warning, dir+" is not writable for this user: if the server runs as this user, the last valid rules are not saved", "chown it to the user of the server")
		}
	case c.Postgres.Address != "":
		f.add("last_good_file", Warning, "not set: a node that starts while PostgreSQL is unavailable has no rules", "last_good_file: /var/lib/headgate/last-good.json")
	}
	if len(f.findings) == 0 && f.checked > 0 {
		f.add("permissions", OK, "secrets are readable, and rules and tokens writable, for their owner and group only", "")
	}
	return f.findings
}

// fileCheck is one examination of files.
type fileCheck struct {
	findings []Finding
	checked  int
}

func (f *fileCheck) add(check string, status Status, detail, remedy string) {
	f.findings = append(f.findings, Finding{Section: SectionFiles, Check: check, Status: status, Detail: detail, Remedy: remedy})
}

// secret checks that other users can neither read nor change a file.
func (f *fileCheck) secret(key, file string) {
	if file == "" {
		return
	}
	f.checked++
	switch m := modeOf(file); {
	case m&othersWrite != 0:
		f.add(key, Problem, fmt.Sprintf("%s (mode %#o) can be changed by every user of this host", file, m), shellwords.Command("chmod", "o-rwx", file))
	case m&othersRead != 0:
		f.add(key, Warning, fmt.Sprintf("%s (mode %#o) can be read by every user of this host", file, m), shellwords.Command("chmod", "o-rwx", file))
	}
}

// trusted checks that other users cannot change a file or directory, which they may read.
func (f *fileCheck) trusted(key, file, risk string) {
	if file == "" {
		return
	}
	f.checked++
	if m := modeOf(file); m&othersWrite != 0 {
		f.add(key, Problem, fmt.Sprintf("%s (mode %#o) can be changed by every user of this host, %s", file, m, risk), shellwords.Command("chmod", "o-w", file))
	}
}

// inDirectory checks the files of a directory. Hidden ones are not rules.
func (f *fileCheck) inDirectory(key, dir, risk string) {
	entries, _ := os.ReadDir(dir) // none if it is a file; examineRules reports one that cannot be read
	for _, entry := range entries {
		file := filepath.Join(dir, entry.Name())
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && entry.Name()[0] != '.' {
			f.trusted(key, file, risk)
		}
	}
}

// modeOf returns the permissions of a file or directory, without the right to write where that right does not let other users change
// it: in a sticky directory, and on a mount that is read-only, such as a ConfigMap with its directories of mode 0777.
func modeOf(file string) fs.FileMode {
	info, err := os.Stat(file)
	if err != nil { // a missing file is a problem of the config or the rules
		return 0
	}
	if info.IsDir() && info.Mode()&fs.ModeSticky != 0 || readOnly(file) {
		return info.Mode().Perm() &^ othersWrite
	}
	return info.Mode().Perm()
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
		return Warning, fmt.Sprintf("%s expires in %s, at %s", t.CertFile, wording.Count(int(left.Hours()/24), "day"), end.UTC().Format(time.RFC3339))
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
