package charttest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/headgate/headgate/internal/testenv"
)

// kubeVersion is the version of Kubernetes that charts are rendered for. Helm built by "go install" assumes 1.20 otherwise.
const kubeVersion = "1.36.3"

// values are values of the chart, or any other YAML mapping.
type values = map[string]any

// extent returns how much to test: "short" or "full" by "make chart", and "" by go test, in which case the test is skipped: it needs
// tools that "make deps" does not build.
func extent(t *testing.T) string {
	t.Helper()
	e := os.Getenv("HEADGATE_CHART")
	if e == "" {
		t.Skip("make chart runs it")
	}
	return e
}

// full skips a test unless "make chart" runs without SHORT=1.
func full(t *testing.T) {
	t.Helper()
	if extent(t) != "full" {
		t.Skip("make chart runs it without SHORT=1")
	}
}

func chartDir(t testing.TB) string {
	t.Helper()
	return filepath.Join(testenv.Repository(t), "deploy", "helm", "headgate")
}

// chart is the chart as one version of Helm renders it.
type chart struct{ helm, dir string }

// charts calls test with Helm 3 and, if "make chart" runs in full, Helm 4.
func charts(t *testing.T, test func(t *testing.T, c chart)) {
	t.Helper()
	for _, helm := range []string{"helm", "helm4"} {
		t.Run(helm, func(t *testing.T) {
			t.Parallel()
			if extent(t); helm == "helm4" {
				full(t)
			}
			test(t, chart{testenv.Find(t, helm), chartDir(t)})
		})
	}
}

// command returns a Helm command that does not use the developer's own settings.
func (c chart) command(t testing.TB, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), c.helm, args...)
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir, "HELM_NO_PLUGINS=1")
	return cmd
}

// run returns the standard output of a Helm command, or an error with its standard error.
func (c chart) run(t testing.TB, args ...string) ([]byte, error) {
	t.Helper()
	var out, problem bytes.Buffer
	cmd := c.command(t, args...)
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return nil, errors.Join(err, errors.New(problem.String()))
	}
	return out.Bytes(), nil
}

// template returns what the chart renders for the release "demo" in the namespace "shop".
func (c chart) template(t testing.TB, v values, args ...string) ([]byte, error) {
	t.Helper()
	return c.templateAs(t, "demo", "shop", v, args...)
}

// templateAs returns what the chart renders for a release in a namespace.
func (c chart) templateAs(t testing.TB, release, namespace string, v values, args ...string) ([]byte, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	text, err := yaml.Marshal(v)
	testenv.NoError(t, err)
	testenv.NoError(t, os.WriteFile(file, text, 0o600))
	return c.run(t, append([]string{"template", release, c.dir, "--namespace", namespace, "--kube-version", kubeVersion, "--values", file}, args...)...)
}

// render returns the objects that the chart renders.
func (c chart) render(t testing.TB, v values) objects {
	t.Helper()
	text, err := c.template(t, v)
	testenv.NoError(t, err)
	return parse(t, text)
}

// objects are Kubernetes objects.
type objects []values

// parse returns the objects of a YAML file.
func parse(t testing.TB, text []byte) (all objects) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var o values
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		testenv.NoError(t, err)
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	if len(all) == 0 || strings.Count(string(text), "\nkind: ")+strings.Count(string(text), "\n  kind: ") < len(all) {
		t.Fatalf("%d objects in:\n%s", len(all), text)
	}
	return all
}

// find returns the object of a kind whose name ends with suffix, or nil.
func (all objects) find(kind, suffix string) values {
	for _, o := range all {
		if o["kind"] == kind && strings.HasSuffix(at[string](o, "metadata", "name"), suffix) {
			return o
		}
	}
	return nil
}

// at returns a value below o, or the zero value if there is none.
func at[T any](o any, path ...string) (found T) {
	for _, key := range path {
		below, ok := o.(values)
		if !ok {
			return found
		}
		o = below[key]
	}
	found, _ = o.(T)
	return found
}

// merge returns a with the values of b added, at any depth.
func merge(a, b values) values {
	merged := maps.Clone(a)
	if merged == nil {
		merged = values{}
	}
	for key, value := range b {
		below, ok := value.(values)
		if over, both := merged[key].(values); ok && both {
			merged[key] = merge(over, below)
			continue
		}
		merged[key] = value
	}
	return merged
}

// leaves returns the paths of all values that are not mappings with keys.
func leaves(v values, prefix string) (paths []string) {
	for key, value := range v {
		if below, ok := value.(values); ok && len(below) > 0 {
			paths = append(paths, leaves(below, prefix+key+".")...)
			continue
		}
		paths = append(paths, prefix+key)
	}
	slices.Sort(paths)
	return paths
}

func readYAML[T any](t testing.TB, file string) (v T) {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.NoError(t, err)
	testenv.NoError(t, yaml.Unmarshal(text, &v))
	return v
}

// minimal are the fewest values that render.
var minimal = values{
	"redis": values{"address": "redis://redis:6379"},
	"rules": values{"files": values{"rules.yaml": "rules: [{id: by-ip, by: [ip], limit: 5/minute}]\n"}},
}
