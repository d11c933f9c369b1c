package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/testenv"
)

// TestComposeFile: every file that the compose file names exists, secrets are mounted as files that only their owner can reach, images
// have a version and no registry, and ports are published on loopback.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pinned := regexp.MustCompile(`^[a-z-]+(/[a-z-]+)?:v?\d+\.\d+(\.\d+)?$`) // a registry has a dot or a port
	for name, s := range w.project.Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q", name, s.Image)
		}
		for target, source := range w.mounts(s) {
			if _, err := os.Stat(source); err != nil && source != "" {
				t.Errorf("%s: %s: %v", name, target, err)
			}
		}
		if b := s.Build; b != nil {
			dockerfile := filepath.Join(b.Context, b.Dockerfile)
			if _, err := os.Stat(dockerfile); err != nil && exists(filepath.Dir(dockerfile)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %d is published on %q", name, p.Target, p.HostIP)
			}
		}
		for key, value := range s.Environment {
			if secret := regexp.MustCompile(`(?i)password|token|secret`); secret.MatchString(key) && !strings.HasSuffix(key, "_FILE") {
				t.Errorf("%s: %s=%s is not a file", name, key, *value)
			}
		}
	}
	if envoy := w.project.Services["envoy"].Image; !strings.Contains(read(t, "Makefile"), "ENVOY_VERSION         = "+strings.TrimPrefix(envoy, "envoyproxy/envoy:")+"\n") {
		t.Errorf("%s is not ENVOY_VERSION of the Makefile", envoy)
	}
	var used []string
	for _, s := range w.project.Services {
		for _, secret := range s.Secrets {
			used = append(used, secret.Source)
		}
	}
	for name, secret := range w.project.Secrets {
		info, err := os.Stat(secret.File)
		testenv.NoError(t, err)
		dir, err := os.Stat(filepath.Dir(secret.File))
		testenv.NoError(t, err)
		if !slices.Contains(used, name) || info.Mode().Perm() != 0o644 || dir.Mode().Perm() != 0o700 {
			t.Errorf("secret %s: used %t, mode %v in a directory with %v", name, slices.Contains(used, name), info.Mode(), dir.Mode())
		}
	}
}

// TestComposeVariables: without variables, ports and secrets have defaults.
func TestComposeVariables(t *testing.T) {
	t.Parallel()
	compose := filepath.Join(testenv.Repository(t), "deploy", "compose")
	defaults := load(t, filepath.Join(compose, "compose.yaml"))
	set := load(t, filepath.Join(compose, "compose.yaml"), "API_PORT=1", "PROMETHEUS_PORT=2", "GRAFANA_PORT=3", "SECRETS=/elsewhere")
	published := func(p *types.Project) (all []string) {
		for _, name := range []string{"envoy", "prometheus", "grafana"} {
			all = append(all, p.Services[name].Ports[0].Published)
		}
		return append(all, p.Secrets["admin_token"].File)
	}
	if got, want := published(defaults), []string{"8000", "9090", "3000", filepath.Join(compose, "secrets", "admin_token")}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := published(set), []string{"1", "2", "3", "/elsewhere/admin_token"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSecretsAreKept: a second run of secrets.sh changes nothing.
func TestSecretsAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	contents := func() (all []string) {
		for _, name := range w.project.SecretNames() {
			text, err := os.ReadFile(w.project.Secrets[name].File)
			testenv.NoError(t, err)
			all = append(all, string(text))
		}
		return all
	}
	before := contents()
	script := filepath.Join(testenv.Repository(t), "deploy", "compose", "secrets.sh")
	testenv.NoError(t, exec.CommandContext(t.Context(), script, filepath.Join(w.dir, "secrets")).Run())
	if !slices.Equal(contents(), before) {
		t.Error("secrets have changed")
	}
}

// TestConfigFiles has each program validate its config, as its container would get it.
func TestConfigFiles(t *testing.T) {
	t.Parallel()
	testenv.Long(t)
	w := newWorld(t)
	w.build()
	for name, command := range map[string][]string{
		"headgate-1": {"headgate", "config", "validate", "/etc/headgate/config.yaml"},
		"headgate-2": {"headgate", "config", "validate", "/etc/headgate/config.yaml"},
		"migrate":    {"headgate", "config", "validate", "/etc/headgate/config.yaml"},
		"rules":      {"headgate", "rules", "validate", "/etc/headgate/rules.yaml"},
		"envoy":      {"envoy", "--mode", "validate", "-c", "/etc/envoy/envoy.yaml"},
		"prometheus": {testenv.Find(t, "promtool"), "check", "config", "/etc/prometheus/prometheus.yaml"},
	} {
		s := w.project.Services[name]
		w.mount(s)
		s.Entrypoint, s.Command = command, nil
		if out, err := w.command(s).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	// Without localized addresses and paths, the config is what a container gets; only its files are not there.
	validate := exec.CommandContext(t.Context(), filepath.Join(w.dir, "bin", "headgate"), "config", "validate",
		filepath.Join(testenv.Repository(t), "deploy", "compose", "headgate", "config.yaml"))
	out, _ := validate.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "/") && !strings.Contains(line, "/run/secrets/") {
			t.Errorf("as a container gets it: %s", line)
		}
	}
}

// TestGrafana: Grafana loads the dashboard of deploy/grafana and its data source is the Prometheus of the compose file.
func TestGrafana(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	testenv.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy/compose/grafana/datasources.yaml")), &sources))
	if len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" || sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("data sources %v", sources.Datasources)
	}
	var dashboards struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	testenv.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy/compose/grafana/dashboards.yaml")), &dashboards))
	s := w.project.Services["grafana"]
	home := *s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if len(dashboards.Providers) != 1 || dashboards.Providers[0].Type != "file" || dashboards.Providers[0].Options.Path != filepath.Dir(home) {
		t.Errorf("providers %v, home dashboard %s", dashboards.Providers, home)
	}
	if got, want := w.mounts(s)[home], filepath.Join(testenv.Repository(t), "deploy", "grafana", "headgate.json"); got != want {
		t.Errorf("%s is %s, want %s", home, got, want)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// read returns the contents of a file of the repository.
func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testenv.Repository(t), name))
	testenv.NoError(t, err)
	return string(text)
}
