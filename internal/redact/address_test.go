package redact_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redact"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{ //nolint:gosec // G101: not real passwords
		"": "", "localhost:6379": "localhost:6379",
		"postgres://ann@db.example:5432/headgate?sslmode=verify-full": "postgres://ann@db.example:5432/headgate?sslmode=verify-full",
		"postgres://ann:hunter2@db.example:5432/headgate":             "postgres://ann:***@db.example:5432/headgate",
		"postgres://127.0.0.1:1/db?user=hg&password=hunter2":          "postgres://127.0.0.1:1/db?user=hg&password=***",
		"postgres://a:1,b:2/db?target_session_attrs=read-write":       "postgres://a:1,b:2/db?target_session_attrs=read-write",
		"postgresql://[::1]:5432/db":                                  "postgresql://[::1]:5432/db",
		"postgres://%2Fvar%2Frun%2Fpostgresql/db":                     "postgres://%2Fvar%2Frun%2Fpostgresql/db",
		"redis://127.0.0.1:6379/3":                                    "redis://127.0.0.1:6379/3",
		"redis://:hunter2@127.0.0.1:6379":                             "redis://***@127.0.0.1:6379",
		"cluster://a:6379,b,[::1]:6379":                               "cluster://a:6379,b,[::1]:6379",
		"sentinel://u:hunter2@a:26379,b:26379/main":                   "sentinel://***@a:26379,b:26379/main",
		"https://id.example.com/keys?token=hunter2":                   "https://id.example.com/keys?token=***",
		"https://hunter2@id.example.com/keys#hunter2":                 "https://***@id.example.com/keys#***",
		"http://127.0.0.1:4318":                                       "http://127.0.0.1:4318",
	} {
		if got := redact.Address(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestNoSpellingShowsTheSecret tests that the secret is hidden in valid and invalid spellings of an address.
func TestNoSpellingShowsTheSecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, address := range []string{
		"postgres://u:hunter2@h/d", "postgres://:hunter2@h/d", "postgres://u:hun/hunter2@h/d", "postgres://u:a?hunter2@h/d",
		"postgres://u:a#hunter2@h/d", "postgres://u:a@hunter2@h/d", "postgres://u:%68unter2hunter2@h/d", "postgres://u:hunter2@[",
		"postgres://h/d?password=hunter2", "postgres://h/d?user=u&password=hunter2@x", "postgres://h/d?pass%77ord=hunter2",
		"postgres://h/d?sslpassword=hunter2", "postgres://h/d?PASSWORD=hunter2", "postgres://h/d?password='hunter2'",
		"postgres://h/d?options=-c%20x=hunter2", "postgres://h/d?;password=hunter2", "postgres://h?password=hunter2", "postgres://h/d#hunter2",
		"postgres://h/d?sslmode=disable;password=hunter2", "postgres://h/password=hunter2", "postgres://a:1,b:2/d?password=hunter2",
		"host=h user=u password=hunter2", "host=h password='hunter2 x'", `host=h password = "hunter2"`, "user=u password=hunter2 sslmode=disable",
		"redis://hunter2@h", "redis://:hunter2@h:1", "redis://u:hunter2", "redis://u:hun/hunter2@h", "redis://h:6379?password=hunter2",
		"redis://h:6379/0?password=hunter2", "rediss://u:hunter2@h", "sentinel://:hunter2@a,b/main", "sentinel://a/main?password=hunter2",
		"cluster://:hunter2@a:1,b:2", "redis:hunter2@h", "redis//:hunter2@h", "://:hunter2@h", "hunter2",
		"https://u:hunter2@h/keys", "https://h/keys?token=hunter2", "https://h/keys?a=b&api_key=hunter2#x", "https://h/keys?hunter2",
		"https://h/keys#access_token=hunter2", "http://hunter2:x@h",
	} {
		if got := redact.Address(address); strings.Contains(got, secret) {
			t.Errorf("%s: %s", address, got)
		}
		if !strings.Contains(address, "://") && !strings.Contains(address, "=") {
			continue // not recognizable as an address in a text
		}
		if got := redact.Text(`cannot parse "` + address + `": it is wrong`); strings.Contains(got, secret) {
			t.Errorf("in a text: %s: %s", address, got)
		}
	}
}

func TestHasPassword(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"postgres://h/d": false, "postgres://u@h/d": false, "postgres://u:p@h/d": true, "postgres://h/d?password=p": true,
		"postgres://h/d?pass%77ord=p": true, "postgres://h/d?user=p": false,
	} {
		if got := redact.HasPassword(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}
