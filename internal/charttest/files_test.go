package charttest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testenv"
)

// update makes tests write the files that are derived from others, instead of comparing them.
var update = flag.Bool("update", false, "write derived files: make chart-files")

// expectFile compares a file with what it is derived to, or writes it.
func expectFile(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		testenv.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		testenv.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not current: make chart-files (%v)", file, err)
	}
}

// TestMonitoringFiles requires that the chart has the alerts and the dashboard of deploy/. Helm reads files of the chart only.
func TestMonitoringFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"prometheus/headgate.rules.yaml", "grafana/headgate.json"} {
		text, err := os.ReadFile(filepath.Join(testenv.Repository(t), "deploy", name))
		testenv.NoError(t, err)
		expectFile(t, filepath.Join(chartDir(t), "files", filepath.Base(name)), string(text))
	}
}

// ofChart are the keys of the config that the chart writes itself.
var ofChart = map[string]bool{
	"listen.http": true, "listen.grpc": true, "listen.ops": true, "listen.admin": true, "listen.open": true, "listen.tokens_file": true,
	"listen.tls.cert_file": true, "listen.tls.key_file": true, "listen.tls.client_ca_file": true,
	"redis.address": true, "redis.username": true, "redis.password_file": true,
	"redis.tls.enabled": true, "redis.tls.ca_file": true, "redis.tls.cert_file": true, "redis.tls.key_file": true,
	"store": true, "rules": true, "postgres.address": true, "postgres.password_file": true, "last_good_file": true,
	"admin.tokens_file": true, "secret_file": true,
	"listen.regions": true, "regions.name": true, "regions.members": true,
	"regions.tls.cert_file": true, "regions.tls.key_file": true, "regions.tls.ca_file": true,
}

// serverConfig returns the keys that the value "config" accepts, with their defaults.
func serverConfig() values {
	all := values{}
	inMemory := config.Default()
	inMemory.Store = config.StoreMemory
	other := inMemory.Settings() // a key that one store does not use has no value there
	for i, s := range config.Default().Settings() {
		if s.Value == "" {
			s = other[i]
		}
		if !ofChart[s.Key] {
			below := values{}
			nested, keys := below, strings.Split(s.Key, ".")
			for _, key := range keys[:len(keys)-1] {
				next := values{}
				nested[key], nested = next, next
			}
			nested[keys[len(keys)-1]] = s.Value
			all = merge(all, below)
		}
	}
	return all
}

// configSchema returns the JSON Schema of config. Any value may be text with a variable, ${NAME}.
func configSchema(v values) values {
	properties := values{}
	for key, value := range v {
		switch value := value.(type) {
		case values:
			properties[key] = configSchema(value)
		case bool:
			properties[key] = values{"type": []string{"boolean", "string"}}
		case int:
			properties[key] = values{"type": []string{"integer", "string"}}
		case []string:
			properties[key] = values{"type": []string{"array", "string"}, "items": values{"type": "string"}}
		case map[string]map[string]any: // by names that are not known here
			properties[key] = values{"type": "object", "additionalProperties": values{"type": "object"}}
		default:
			properties[key] = values{"type": "string"}
		}
	}
	return values{"type": "object", "additionalProperties": false, "properties": properties}
}

// TestConfigSchema requires that the schema of the chart knows every key of the server's config.
func TestConfigSchema(t *testing.T) {
	t.Parallel()
	file := filepath.Join(chartDir(t), "values.schema.json")
	text, err := os.ReadFile(file)
	testenv.NoError(t, err)
	var schema values
	testenv.NoError(t, json.Unmarshal(text, &schema))
	known := configSchema(serverConfig())
	known["patternProperties"] = values{"^x-": true}
	schema["properties"].(values)["config"] = known
	want, err := json.MarshalIndent(schema, "", "  ")
	testenv.NoError(t, err)
	expectFile(t, file, string(want)+"\n")
}

// TestSchemaDefaults requires that the schema has every value of values.yaml, and no others.
func TestSchemaDefaults(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chartDir(t), "values.schema.json"))
	testenv.NoError(t, err)
	var schema values
	testenv.NoError(t, json.Unmarshal(text, &schema))
	delete(schema["properties"].(values), "global") // of Helm
	compareKeys(t, "", schema, readYAML[values](t, filepath.Join(chartDir(t), "values.yaml")))
}

// compareKeys compares the properties of a schema with values. An object that accepts only keys that the schema names, and that is
// empty by default, has no properties to compare.
func compareKeys(t *testing.T, prefix string, schema, defaults values) {
	t.Helper()
	properties := at[values](schema, "properties")
	for key, value := range defaults {
		if properties[key] == nil {
			t.Errorf("%s%s is not in the schema", prefix, key)
		} else if below, ok := value.(values); ok && at[values](properties[key], "properties") != nil && key != "config" {
			compareKeys(t, prefix+key+".", properties[key].(values), below)
		}
	}
	for key := range properties {
		if _, known := defaults[key]; !known && !strings.HasSuffix(prefix, "Probe.") {
			t.Errorf("%s%s is not in values.yaml", prefix, key)
		}
	}
}

const (
	tableBegin = "<!-- values, by make chart-files -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// TestReadme requires that the README of the chart has a row for every value, with its comment and default.
func TestReadme(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join(chartDir(t), "values.yaml"))
	testenv.NoError(t, err)
	file := filepath.Join(chartDir(t), "README.md")
	text, err := os.ReadFile(file)
	testenv.NoError(t, err)
	before, rest, _ := strings.Cut(string(text), tableBegin)
	_, after, found := strings.Cut(rest, tableEnd)
	if !found {
		t.Fatalf("%s: no %q and %q", file, tableBegin, tableEnd)
	}
	expectFile(t, file, before+tableBegin+table(t, string(source))+tableEnd+after)
}

// table returns a table of values.yaml. A key that has a comment with "# --" has a row, and all others are above or below one.
func table(t *testing.T, source string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| value | default | |\n|---|---|---|\n")
	var defaults values
	testenv.NoError(t, yaml.Unmarshal([]byte(source), &defaults))
	var path []string
	comment, documented, rows := "", "", 0
	for line := range strings.Lines(source) {
		text := strings.TrimSpace(line)
		if after, ok := strings.CutPrefix(text, "# -- "); ok {
			comment = after
			continue
		}
		key, _, ok := strings.Cut(text, ":")
		if !ok || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "-") {
			continue
		}
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		path = append(path[:min(depth, len(path))], key)
		name := strings.Join(path, ".")
		value := at[any](defaults, path...)
		if comment == "" {
			if below, isMap := value.(values); documented == "" || !strings.HasPrefix(name, documented+".") {
				if !isMap || len(below) == 0 {
					t.Errorf("values.yaml: %s has no comment", name)
				}
			}
			continue
		}
		shown, err := json.Marshal(value)
		testenv.NoError(t, err)
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", name, shown, strings.ReplaceAll(comment, "|", `\|`))
		comment, documented = "", name
		rows++
	}
	if rows < 90 {
		t.Errorf("only %d rows", rows)
	}
	return b.String()
}

// TestImage compares the user of the pods with that of the image.
func TestImage(t *testing.T) {
	t.Parallel()
	v := readYAML[values](t, filepath.Join(chartDir(t), "values.yaml"))
	want := fmt.Sprintf("\nUSER %v:%v\n", at[any](v, "podSecurityContext", "runAsUser"), at[any](v, "podSecurityContext", "runAsGroup"))
	if image := readText(t, filepath.Join(testenv.Repository(t), "deploy", "docker", "Dockerfile")); !strings.Contains(image, want) {
		t.Errorf("no %q in the Dockerfile", want)
	}
}
