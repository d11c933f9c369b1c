package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestDocumentedRegions loads the example of regions, with its files moved, and checks the numbers in the text.
func TestDocumentedRegions(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(readDocs(t), "\n## Regions\n")
	_, text, _ := strings.Cut(section, "```yaml\n")
	text, _, ok := strings.Cut(text, "```")
	if !ok {
		t.Fatal("example not found")
	}
	files, err := filepath.Abs("testdata/files")
	if err != nil {
		t.Fatal(err)
	}
	text = strings.NewReplacer("/etc/headgate/regions-key.pem", files+"/key.pem", "/etc/headgate/regions.pem", files+"/cert.pem",
		"/etc/headgate/regions-ca.pem", files+"/cert.pem").Replace(text)
	c, err := Load(write(t, "rules: rules\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	if row := "With `regions`, `" + c.Listen.Regions + "` unless"; !strings.Contains(readDocs(t), row) {
		t.Errorf("the documentation does not have %q", row)
	}
	for i, want := range []int64{200, 400, 400} {
		if share := c.Regions.Fractions()[i].Share(headgate.Per(1000, time.Minute)); share.Count != want {
			t.Errorf("the share of %s is %s", c.Regions.Members[i].Name, share)
		}
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
		if v := reflect.ValueOf(value); !slices.Contains([]reflect.Kind{reflect.String, reflect.Slice, reflect.Map}, v.Kind()) || v.Len() > 0 {
			shown = fmt.Sprintf("`%v`", value)
		}
		want = append(want, settings[i].key+" "+shown)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
