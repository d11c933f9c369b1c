package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

func readDocs(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocumentedConfig loads the example of the documentation, with its paths moved to a temporary directory.
func TestDocumentedConfig(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(readDocs(t), "```yaml\n")
	text, _, ok := strings.Cut(text, "```")
	if !ok {
		t.Fatal("example not found")
	}
	dir := t.TempDir()
	for _, path := range []string{"/run/secrets/redis", "/etc/headgate/rules/"} {
		if !strings.Contains(text, path) {
			t.Fatalf("the example does not name %s", path)
		}
		text = strings.Replace(text, path, filepath.Join(dir, filepath.Base(path)), 1)
	}
	file := filepath.Join(dir, "config.yaml")
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "rules"), 0o700),
		os.WriteFile(filepath.Join(dir, "redis"), []byte("password"), 0o600),
		os.WriteFile(file, []byte(text), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	if c.Listen != want.Listen || c.Mode != headgate.Enforce || c.Headers != want.Headers ||
		c.Redis.Address != want.Redis.Address || c.Redis.Namespace != want.Redis.Namespace {
		t.Errorf("the example differs from the defaults: %+v", c)
	}
	if len(c.Identity.TrustedProxies) != 1 || c.Identity.APIKey.Header != "X-API-Key" ||
		c.Redis.PasswordFile != filepath.Join(dir, "redis") || len(c.Rules) != 1 {
		t.Errorf("%+v", c)
	}
}

// TestDocumentedKeys checks that the documentation has a row for each key, with its default.
func TestDocumentedKeys(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| (.*?) \\| .{3,} \\|$").FindAllStringSubmatch(readDocs(t), -1)
	var got, want []string
	for _, row := range rows {
		got = append(got, row[1]+" "+row[2])
	}
	for i := range settings {
		shown, value := "–", settings[i].value(Default())
		if v := reflect.ValueOf(value); v.Kind() != reflect.String && v.Kind() != reflect.Slice || v.Len() > 0 {
			shown = fmt.Sprintf("`%v`", value)
		}
		want = append(want, settings[i].key+" "+shown)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
