package charttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// manifestValues are the values of the plain manifests: users create the Secrets, and kustomize makes the ConfigMaps.
var manifestValues = values{
	"redis":   values{"address": "redis://redis:6379"},
	"rules":   values{"existingConfigMap": "headgate-rules"},
	"callers": values{"existingSecret": "headgate-caller"},
	"admin":   values{"existingSecret": "headgate-admin"},
}

// ofHelm begin lines that are for Helm only, or that kustomize does better: it renames a ConfigMap to restart pods.
var ofHelm = []string{
	"helm.sh/chart:", "app.kubernetes.io/managed-by:", `namespace: "shop"`, "# Source:", "annotations:",
	"# The config is read at the start only.", "checksum/config:",
}

// manifests returns the plain manifests, and the config.
func manifests(t *testing.T) (text, config string) {
	t.Helper()
	c := chart{testenv.Find(t, "helm"), chartDir(t)}
	v := merge(manifestValues, values{"fullnameOverride": "headgate"})
	rendered, err := c.template(t, v)
	testenv.NoError(t, err)
	config = at[string](parse(t, rendered).find("ConfigMap", "-config"), "data", "config.yaml")
	var b strings.Builder
	b.WriteString("# What the Helm chart renders: make chart-files.\n")
	for document := range strings.SplitSeq(string(rendered), "---\n") {
		if strings.TrimSpace(document) == "" || strings.Contains(document, "kind: ConfigMap") || strings.Contains(document, "helm.sh/hook") {
			continue
		}
		b.WriteString("---\n")
		for line := range strings.Lines(strings.ReplaceAll(document, "app.kubernetes.io/instance: demo", "app.kubernetes.io/instance: headgate")) {
			if !startsWithAny(strings.TrimSpace(line), ofHelm) {
				b.WriteString(line)
			}
		}
	}
	return b.String(), "# What the server reads at its start: https://github.com/headgate/headgate/blob/main/docs/config.md\n" + config
}

func startsWithAny(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// TestManifests requires that the plain manifests are what the chart renders, that they are valid, and that the server runs with them and
// a token that the documentation describes.
func TestManifests(t *testing.T) {
	t.Parallel()
	extent(t)
	dir := filepath.Join(testenv.Repository(t), "deploy", "kubernetes")
	text, config := manifests(t)
	expectFile(t, filepath.Join(dir, "headgate.yaml"), text)
	expectFile(t, filepath.Join(dir, "config.yaml"), config)
	if *update {
		return
	}
	validate(t, filepath.Join(dir, "headgate.yaml"))
	printed, err := exec.CommandContext(t.Context(), program(t), "token", "create", "gateway", "--role", "caller").Output()
	testenv.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(printed)), "\n")
	redis := testenv.Start(t, testenv.Redis)
	config = strings.ReplaceAll(config, "redis://redis:6379", "redis://"+redis.Addr()+"\n  deadline: 1s")
	given := map[string]map[string]string{
		"headgate-caller": {"tokens": lines[len(lines)-1]},
		"headgate-admin":  {"tokens": tokenLine("admin-token", "ann admin")},
		"headgate-config": {"config.yaml": config},
		"headgate-rules":  {"rules.yaml": readText(t, filepath.Join(dir, "rules", "rules.yaml"))},
	}
	p := newPod(t, parse(t, []byte(text)), given)
	p.validate()
	n := p.start(t)
	n.ready()
	if got := append(n.authorize(lines[1], 1), n.authorize("other", 1)...); !slices.Equal(got, []int{200, 401}) {
		t.Errorf("%v with the token, and with another", got)
	}
}

// TestKustomize builds the manifests: a change of the config renames its ConfigMap, a change of the rules does not.
func TestKustomize(t *testing.T) {
	t.Parallel()
	full(t)
	tool, dir := testenv.Find(t, "kustomize"), t.TempDir()
	testenv.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(testenv.Repository(t), "deploy", "kubernetes"))))
	build := func() objects {
		out, err := exec.CommandContext(t.Context(), tool, "build", dir).Output()
		testenv.NoError(t, err)
		file := filepath.Join(t.TempDir(), "built.yaml")
		testenv.NoError(t, os.WriteFile(file, out, 0o600))
		validate(t, file)
		return parse(t, out)
	}
	config := func(all objects) string {
		for _, v := range at[[]any](all.find("Deployment", ""), "spec", "template", "spec", "volumes") {
			if at[string](v, "name") == "config" {
				return at[string](v, "configMap", "name")
			}
		}
		return ""
	}
	first := build()
	if all := config(first); !strings.HasPrefix(all, "headgate-config-") || first.find("ConfigMap", all) == nil {
		t.Errorf("the pods use the ConfigMap %q", all)
	}
	testenv.WriteFiles(t, filepath.Join(dir, "rules"), map[string]string{"rules.yaml": "rules: []\n"})
	if got := config(build()); got != config(first) {
		t.Errorf("a change of the rules restarts pods: %s, before %s", got, config(first))
	}
	testenv.WriteFiles(t, dir, map[string]string{"config.yaml": "rules: [/etc/headgate/rules/]\n"})
	if got := config(build()); got == config(first) {
		t.Errorf("a change of the config restarts no pods: %s", got)
	}
}

func readText(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.NoError(t, err)
	return string(text)
}
