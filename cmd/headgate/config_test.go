package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/headgate/headgate/internal/server/config"
)

func TestConfigJSON(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"validate", "show"} {
		r := startJSON[configReport](t, 0, "config", command, "testdata/config.yaml")
		redis, _ := r.Config["redis"].(map[string]any)
		if !r.OK || r.Problems == nil || r.Config["mode"] != "shadow" ||
			redis["address"] != "rediss://***@redis.example.com:6379" {
			t.Errorf("%s: %+v", command, r)
		}
		r = startJSON[configReport](t, 1, "config", command, "testdata/config-bad.yaml")
		if r.OK || r.Config != nil || len(r.Problems) != 6 || r.Problems[0].Line != 1 || r.Problems[0].Excerpt == "" {
			t.Errorf("%s: %+v", command, r)
		}
	}
}

func TestConfigRegionsJSON(t *testing.T) {
	t.Parallel()
	r := startJSON[configReport](t, 0, "config", "show", "testdata/regions.yaml")
	regions, _ := r.Config["regions"].(map[string]any)
	members, _ := regions["members"].(map[string]any)
	want := map[string]any{"address": "headgate.eu.example.com:8084", "weight": 2.0}
	if regions["name"] != "eu" || len(members) != 3 || !reflect.DeepEqual(members["eu"], want) {
		t.Errorf("%+v", regions)
	}
}

// TestConfigShowRoundTrip checks that the output of config show is an equivalent config.
func TestConfigShowRoundTrip(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := filepath.Abs("../../internal/server/config/testdata/files")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"rules: rules", `
rules: rules
listen: {regions: "[::1]:9084"}
regions:
  name: "1"
  members: {"1": {address: "[::1]:9084"}, "true": {address: localhost:1, weight: 7}, "a.b": {address: a.example:1}}
  tls: {cert_file: ` + files + "/cert.pem, key_file: " + files + "/key.pem, ca_file: " + files + "/cert.pem}\n", `
listen: {http: off, grpc: ":1", open: true}
rules: [rules, "a b.yaml"]
redis: {namespace: "7", username: "true", password_file: "a b.yaml", tls: {server_name: "null"}}
identity:
  trusted_hops: 2
  api_key: {header: X-Key, query: "$${x}: #\"é\""}
  jwt: {algorithms: [ES256, EdDSA], key_url: "https://id.example.com/keys/a%20b", audience: ["1", "a, b", "[]"], leeway: 1m30s}
`} {
		for name, text := range map[string]string{"c.yaml": text, "a b.yaml": "rules: []", "rules": "rules: []"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		first, second := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "again.yaml")
		o := start(t, "config", "show", first)
		if err := os.WriteFile(second, []byte(o.out), 0o600); err != nil || o.code != 0 {
			t.Fatal(o, err)
		}
		want, err := config.Load(first)
		if err != nil {
			t.Fatal(err)
		}
		got, err := config.Load(second)
		if err != nil {
			t.Fatalf("%v\n%s", err, o.out)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v\n%s", got, want, o.out)
		}
	}
}
