package charttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// misspell returns a copy of v in which every key has a letter too many, at every depth, next to the right one.
func misspell(v values) values {
	wrong := values{}
	for key, value := range v {
		if below, ok := value.(values); ok && len(below) > 0 {
			wrong[key] = misspell(below)
		}
		wrong[key+"x"] = value
	}
	return wrong
}

// free are values whose keys are those of Kubernetes.
var free = []string{"resources", "podSecurityContext", "securityContext", "grafanaDashboard.labels"}

func isFree(path string) bool {
	for _, f := range free {
		if path == f || strings.HasPrefix(path, f+".") {
			return true
		}
	}
	return false
}

// TestMisspeltValues misspells every value, and every key of config that the server knows.
func TestMisspeltValues(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		v := readYAML[values](t, filepath.Join(c.dir, "values.yaml"))
		v["config"] = serverConfig()
		_, err := c.template(t, merge(misspell(v), minimal))
		if err == nil {
			t.Fatal("misspelt values are accepted")
		}
		for _, path := range leaves(v, "") {
			at := strings.LastIndexByte(path, '.')
			above, key := strings.ReplaceAll("."+path[:max(at, 0)], ".", "/"), path[at+1:]+"x"
			rejected := regexp.MustCompile(`(?m)^ *- at '` + strings.TrimSuffix(above, "/") + `': additional properties .*'` + key + `'.* not allowed`)
			if !isFree(path) && !rejected.MatchString(err.Error()) {
				t.Errorf("%sx is accepted", path)
			}
		}
	})
}

// TestInvalidValues shows what the schema and the chart reject, and how.
func TestInvalidValues(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		if _, err := c.template(t, values{}); err == nil || !strings.Contains(err.Error(), "redis.address: required") {
			t.Errorf("without values: %v", err)
		}
		if _, err := c.template(t, values{"redis": minimal["redis"]}); err == nil || !strings.Contains(err.Error(), "none is set") {
			t.Errorf("without rules: %v", err)
		}
		if _, err := c.template(t, minimal, "--set", "service.grpcPort=8080"); err == nil { // an int64, and numbers in files are of another type
			t.Error("two equal ports are accepted")
		}
		for _, test := range []struct {
			values values
			want   string
		}{
			{values{"redis": values{"address": "redis:6379"}}, "/redis/address"},
			{values{"redis": values{"address": "redis://:pa/s@s@redis:6379"}}, "redis.address: a password in it would be in a ConfigMap: set redis.existingSecret"},
			{values{"redis": values{"address": "cluster://ann:secret@a:6379,b:6379"}}, "set redis.existingSecret"},
			{values{"redis": values{"address": "redis://ann:secret@${HOST}"}}, "set redis.existingSecret"},
			{values{"postgres": values{"address": "postgres://ann:secret@db/headgate"}}, "set postgres.existingSecret"}, //nolint:gosec // G101: an example
			{values{"postgres": values{"address": "postgres://ann@db/headgate?a=b&password=secret"}}, "set postgres.existingSecret"},
			{values{"rules": values{"files": values{"rules.txt": "rules: []"}}}, "rules.txt"},
			{values{"callers": values{"auth": "none"}}, "/callers/auth"},
			{values{"image": values{"digest": "sha256:1"}}, "/image/digest"},
			{values{"config": values{"listen": values{"http": ":80"}}}, "'http' not allowed"},
			{values{"config": values{"redis": values{"password": "x"}}}, "'password' not allowed"},
			{values{"config": values{"nodes": true}}, "/config/nodes"},
			{values{"redis": values{"username": "a"}}, "redis.username: needs a password"},
			{values{"redis": values{"tls": values{"certKey": "tls.crt"}}}, "belong together"},
			{values{"redis": values{"tls": values{"existingSecret": "a", "caKey": ""}}}, "nothing of it is used"},
			{values{"rules": values{"existingConfigMap": "a"}}, "rules.files, rules.existingConfigMap are set"},
			{values{"rules": values{"files": values{"rules.yaml": strings.Repeat("# 16 characters.\n", 1<<16)}}}, "at most 1 MiB"},
			{values{"postgres": values{"existingSecret": "a"}}, "needs postgres.address"},
			{values{"callers": values{"auth": "certificate"}}, "set tls.existingSecret"},
			{values{"callers": values{"auth": "certificate"}, "tls": values{"existingSecret": "a"}}, "set tls.clientCA.existingSecret"},
			{values{"tls": values{"existingSecret": "a", "clientCA": values{"existingSecret": "a"}}}, "remove tls.clientCA.existingSecret"},
			{values{"admin": values{"expose": true}}, "use kubectl port-forward"},
			{values{"admin": values{"expose": true, "enabled": false}}, "set admin.enabled, too"},
			{values{"regions": values{"members": values{"eu": values{}}}}, "regions.name: required with regions.members"},
			{values{"config": values{"regions": values{"on_store_loss": "deny"}}}, "regions.name: required with"},
			{values{"regions": values{"name": "eu", "existingSecret": "a", "members": values{"us": values{}}}}, "regions.name: eu: is not one of regions.members"},
			{values{"regions": values{"name": "eu", "members": values{"eu": values{}}}}, "regions.existingSecret: required"},
			{values{"config": values{"regions": values{"name": "eu"}}}, "'name' not allowed"},
			{values{"store": "memory", "replicaCount": 1, "redis": values{"address": ""}, "regions": values{"name": "eu"}}, "set store to redis"},
			{values{"preStopSeconds": 20}, "set 33 or more"},
			{values{"store": "memory", "replicaCount": 2}, "set replicaCount to 1"},
			{values{"store": "memory", "replicaCount": 1}, "does not use redis"},
			{values{"store": "memory", "replicaCount": 1, "updateStrategy": values{"type": "RollingUpdate"}}, "set updateStrategy.type to Recreate"},
			{values{"updateStrategy": values{"type": "OnDelete"}}, "/updateStrategy/type"},
			{values{"store": "memory", "replicaCount": 1, "redis": values{"address": "", "existingSecret": "a"}}, "does not use redis"},
			{values{"store": "memory", "replicaCount": 1, "redis": values{"address": "", "tls": values{"existingSecret": "a"}}}, "does not use redis"},
			{values{"store": "memory", "replicaCount": 1, "redis": values{"address": "", "tls": values{"enabled": true}}}, "does not use redis"},
			{values{"service": values{"grpcPort": 8080}}, "service: httpPort, grpcPort"},
			{values{"service": values{"adminPort": 8081}, "admin": values{"expose": true}, "tls": values{"existingSecret": "a"}}, "service: httpPort, grpcPort"},
			{values{"autoscaling": values{"enabled": true}, "resources": values{"requests": nil}}, "set resources.requests.cpu"},
			{values{"fullnameOverride": "a.b"}, "fullnameOverride"},
			{values{"fullnameOverride": "1a"}, "must begin with a letter"},
			{values{"nameOverride": "a.b"}, "set fullnameOverride"},
			{values{"config": values{"memory": values{"max_counters": 5000}}}, "config.memory"},
			{values{"autoscaling": values{"minReplicas": 11}}, "minReplicas is above maxReplicas"},
		} {
			if _, err := c.template(t, merge(minimal, test.values)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%.200s: %v, want %q", fmt.Sprint(test.values), err, test.want)
			}
		}
	})
}

// TestReleaseNames requires that names of Services are those that Kubernetes accepts.
func TestReleaseNames(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		for _, release := range []string{"123", "shop.limits"} {
			if _, err := c.templateAs(t, release, "shop", minimal); err == nil || !strings.Contains(err.Error(), "set fullnameOverride") {
				t.Errorf("%s: %v", release, err)
			}
			if _, err := c.templateAs(t, release, "shop", merge(minimal, values{"fullnameOverride": "gate"})); err != nil {
				t.Errorf("%s: %v", release, err)
			}
		}
		long := strings.Repeat("a", 52) + "---b" // cut off in its hyphens
		if got := at[string](c.render(t, merge(minimal, values{"fullnameOverride": long})).find("ServiceAccount", ""), "metadata", "name"); got != long[:52] {
			t.Errorf("%s: %s", long, got)
		}
	})
}

// TestAutoscalingWithoutCPU scales by other metrics only, which requires no CPU request.
func TestAutoscalingWithoutCPU(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		metric := values{"type": "Resource", "resource": values{"name": "memory", "target": values{"type": "Utilization", "averageUtilization": uint64(80)}}}
		all := c.render(t, merge(minimal, values{
			"autoscaling": values{"enabled": true, "targetCPUUtilizationPercentage": nil, "metrics": []any{metric}}, "resources": values{"requests": nil},
		}))
		if got := at[[]any](all.find("HorizontalPodAutoscaler", ""), "spec", "metrics"); !reflect.DeepEqual(got, []any{metric}) {
			t.Errorf("metrics %v", got)
		}
	})
}

// TestAddressWithVariable accepts addresses whose password is a variable, or that have none.
func TestAddressWithVariable(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		for redis, postgres := range map[string]string{ //nolint:gosec // G101: examples
			"redis://ann:${PASSWORD}@redis:6379": "postgres://ann:${PASSWORD}@db:5432/headgate?password=${PASSWORD}",
			"${REDIS_URL}":                       "${POSTGRES_URL}",
			"redis://ann@redis:6379":             "postgres://ann@db:5432/headgate?application_name=a:b@c",
		} {
			v := values{"redis": values{"address": redis}, "postgres": values{"address": postgres}}
			if _, err := c.template(t, v); err != nil {
				t.Errorf("%v: %v", v, err)
			}
		}
	})
}

// TestStrategy requires that only a rolling update has rollingUpdate, which the API server rejects elsewhere and schemas do not, and that there are never two
// pods with counters in memory.
func TestStrategy(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		inMemory := values{"store": "memory", "replicaCount": 1, "rules": minimal["rules"]}
		recreate := values{"updateStrategy": values{"type": "Recreate"}}
		rolling := values{"type": "RollingUpdate", "rollingUpdate": values{"maxUnavailable": uint64(0), "maxSurge": uint64(1)}}
		for _, test := range []struct{ values, want values }{
			{minimal, rolling},
			{merge(minimal, recreate), values{"type": "Recreate"}},
			{inMemory, values{"type": "Recreate"}},
			{merge(inMemory, recreate), values{"type": "Recreate"}},
			{merge(minimal, values{"updateStrategy": nil}), values{"type": "RollingUpdate"}},
		} {
			if got := at[values](c.render(t, test.values).find("Deployment", ""), "spec", "strategy"); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%v: strategy %v, want %v", test.values, got, test.want)
			}
		}
	})
}

// TestRollouts renders changes: only those that a pod reads at its start change the pods.
func TestRollouts(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		template := func(change values) values {
			return at[values](c.render(t, merge(minimal, change)).find("Deployment", ""), "spec", "template")
		}
		before := template(nil)
		for _, change := range []values{
			nil, // new tokens are generated every time, because there is no cluster to read them from
			{"rules": values{"files": values{"rules.yaml": "rules: []\n", "more.yaml": "rules: []\n"}}},
			{"replicaCount": 5},
			{"serviceMonitor": values{"enabled": true}},
		} {
			if !reflect.DeepEqual(template(change), before) {
				t.Errorf("%v: pods restart", change)
			}
		}
		for _, change := range []values{
			{"config": values{"mode": "shadow"}},
			{"redis": values{"address": "redis://other:6379"}},
			{"config": values{"nodes": 5}},
		} {
			if reflect.DeepEqual(template(change), before) {
				t.Errorf("%v: pods do not restart", change)
			}
		}
	})
}

// TestTestPod checks that Services and the PodDisruptionBudget do not select the pod of "helm test".
func TestTestPod(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		all := c.render(t, minimal)
		labels := at[values](all.find("Pod", "-test"), "metadata", "labels")
		selector := at[values](all.find("Service", "-headless"), "spec", "selector")
		if len(selector) == 0 || !differ(selector, labels) {
			t.Errorf("%v selects %v", selector, labels)
		}
		if pods := at[values](all.find("Deployment", ""), "spec", "template", "metadata", "labels"); differ(selector, pods) {
			t.Errorf("%v does not select %v", selector, pods)
		}
	})
}

// TestNetworkPolicy requires that no callers means none, and that the pod of "helm test" reaches the ops port.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		// peers returns who may connect to a port, and whether a rule has it. A rule without peers is for all.
		peers := func(all objects, port string) (from []any, open bool) {
			for _, rule := range at[[]any](all.find("NetworkPolicy", ""), "spec", "ingress") {
				for _, p := range at[[]any](rule, "ports") {
					if at[string](p, "port") == port {
						return at[[]any](rule, "from"), true
					}
				}
			}
			return nil, false
		}
		restricted := merge(minimal, values{"networkPolicy": values{"enabled": true, "metrics": []any{values{"namespaceSelector": values{}}}}})
		for _, none := range []any{[]any{}, nil} {
			all := c.render(t, merge(restricted, values{"networkPolicy": values{"callers": none}}))
			for _, port := range []string{"http", "grpc"} {
				if from, open := peers(all, port); open {
					t.Errorf("callers %v: %s is open to %v", none, port, from)
				}
			}
			if _, open := peers(all, "ops"); !open {
				t.Errorf("callers %v: ops is closed", none)
			}
		}
		all := c.render(t, restricted)
		labels := at[values](all.find("Pod", "-test"), "metadata", "labels")
		from, _ := peers(all, "ops")
		if len(from) != 2 || !slices.ContainsFunc(from, func(peer any) bool {
			selector := at[values](peer, "podSelector", "matchLabels")
			return len(selector) > 0 && !differ(selector, labels)
		}) {
			t.Errorf("%v do not include the pod of helm test, %v", from, labels)
		}
	})
}

// TestNamesAreText renders names that YAML reads as numbers and others, unless they are quoted.
func TestNamesAreText(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		secret := values{"existingSecret": "0123"}
		v := merge(minimal, values{
			"fullnameOverride": "true", "nameOverride": "7", "priorityClassName": "null", "serviceAccount": values{"name": "1"},
			"callers": secret, "admin": secret, "tls": secret, "secret": secret, "redis": secret, "commonLabels": values{"a": "1"}, "podLabels": values{"b": "no"},
			"image": values{"pullSecrets": []any{values{"name": "2"}}}, "rules": values{"files": nil, "existingConfigMap": "1.5"},
			"networkPolicy": values{"enabled": true, "metrics": []any{values{"podSelector": values{}}}},
			"autoscaling":   values{"enabled": true}, "serviceMonitor": values{"enabled": true}, "prometheusRule": values{"enabled": true}, "grafanaDashboard": values{"enabled": true},
		})
		text, err := c.templateAs(t, "123", "456", v)
		testenv.NoError(t, err)
		for _, o := range parse(t, text) {
			expectText(t, at[string](o, "kind"), o)
		}
	})
}

// expectText requires that names, labels and annotations below v are text.
func expectText(t *testing.T, path string, v any) {
	t.Helper()
	switch v := v.(type) {
	case values:
		for key, below := range v {
			name := path + "." + key
			switch key {
			case "name", "namespace", "secretName", "serviceAccountName", "priorityClassName":
				if _, ok := below.(string); !ok {
					t.Errorf("%s: %v is not text", name, below)
				}
			case "labels", "matchLabels", "selector", "annotations":
				for key, value := range at[values](below) {
					if _, ok := value.(string); !ok && key != "matchLabels" {
						t.Errorf("%s.%s: %v is not text", name, key, value)
					}
				}
			}
			expectText(t, name, below)
		}
	case []any:
		for _, below := range v {
			expectText(t, path, below)
		}
	}
}

// TestLabelsOfTheChart requires that further labels do not replace those that Services select.
func TestLabelsOfTheChart(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		labels := values{"app.kubernetes.io/name": "x", "app.kubernetes.io/instance": "x", "app.kubernetes.io/component": "x", "helm.sh/chart": "x", "team": "edge"}
		more := values{"enabled": true, "labels": labels}
		all := c.render(t, merge(minimal, values{
			"commonLabels": labels, "podLabels": labels, "podAnnotations": values{"checksum/config": "x"}, "serviceMonitor": more, "prometheusRule": more, "grafanaDashboard": more,
		}))
		service, pod := all.find("Service", "-headless"), at[values](all.find("Deployment", ""), "spec", "template")
		selector := at[values](service, "spec", "selector")
		if selector["app.kubernetes.io/instance"] != "demo" || differ(selector, at[values](pod, "metadata", "labels")) {
			t.Errorf("%v does not select %v", selector, at[values](pod, "metadata", "labels"))
		}
		if scraped := at[values](all.find("ServiceMonitor", ""), "spec", "selector", "matchLabels"); differ(scraped, at[values](service, "metadata", "labels")) {
			t.Errorf("%v does not select %v", scraped, service)
		}
		if !differ(selector, at[values](all.find("Pod", "-test"), "metadata", "labels")) {
			t.Errorf("%v selects the pod of helm test", selector)
		}
		if at[string](pod, "metadata", "annotations", "checksum/config") == "x" {
			t.Error("podAnnotations replace the checksum of the config")
		}
		for _, o := range all {
			if at[string](o, "metadata", "labels", "team") != "edge" {
				t.Errorf("%v %v has no common label", o["kind"], at[string](o, "metadata", "name"))
			}
		}
	})
}

// TestNull sets all values to null, as a key with nothing below it does: the schema names those that the chart needs, and it renders without the others.
func TestNull(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		required := at[[]any](readYAML[values](t, filepath.Join(c.dir, "values.schema.json")), "required")
		missing, others := values{}, values{}
		for key := range readYAML[values](t, filepath.Join(c.dir, "values.yaml")) {
			if slices.Contains(required, any(key)) {
				missing[key] = nil
			} else {
				others[key] = nil
			}
		}
		_, err := c.template(t, missing)
		for key := range missing {
			if err == nil || !regexp.MustCompile(`missing propert.*'`+key+`'`).MatchString(err.Error()) {
				t.Errorf("%s: %v", key, err)
			}
		}
		newPod(t, c.render(t, merge(minimal, others)), fixtures(t)).validate()
	})
}

// TestNoProbe removes probes.
func TestNoProbe(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
			spec := at[values](c.render(t, merge(minimal, values{probe: nil})).find("Deployment", ""), "spec", "template", "spec")
			if container := at[[]any](spec, "containers")[0].(values); container[probe] != nil {
				t.Errorf("%s: %v", probe, container[probe])
			}
		}
	})
}

// differ reports whether a selector does not match labels.
func differ(selector, labels values) bool {
	for key, value := range selector {
		if labels[key] != value {
			return true
		}
	}
	return false
}

// TestLint runs helm lint with the defaults and with each alternative of the rules.
func TestLint(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		if _, err := c.run(t, "lint", "--strict", "--quiet", c.dir); err != nil {
			t.Error(err)
		}
	})
}

// TestPackage packs the chart, without what is for developers only, and renders the package.
func TestPackage(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		dir := t.TempDir()
		if _, err := c.run(t, "package", c.dir, "--destination", dir); err != nil {
			t.Fatal(err)
		}
		packed := chart{c.helm, filepath.Join(dir, "headgate-0.1.0.tgz")}
		enabled := values{"prometheusRule": values{"enabled": true}, "grafanaDashboard": values{"enabled": true}}
		all := packed.render(t, merge(minimal, enabled))
		groups := at[[]any](all.find("PrometheusRule", ""), "spec", "groups")
		want := readYAML[values](t, filepath.Join(testenv.Repository(t), "deploy", "prometheus", "headgate.rules.yaml"))
		if !reflect.DeepEqual(any(groups), want["groups"]) {
			t.Error("the rules of the PrometheusRule are not those of deploy/prometheus")
		}
		if !strings.Contains(at[string](all.find("ConfigMap", "-dashboard"), "data", "headgate.json"), `"uid": "headgate"`) {
			t.Error("the dashboard is not in its ConfigMap")
		}
	})
}

// TestSuites runs the suites of helm-unittest in the chart.
func TestSuites(t *testing.T) {
	t.Parallel()
	full(t)
	out, err := exec.CommandContext(t.Context(), testenv.Find(t, "helm-unittest"), "--strict", chartDir(t)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Tests:") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDocumentedValues renders the values that the documentation begins with.
func TestDocumentedValues(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		for _, page := range []string{filepath.Join(c.dir, "README.md"), filepath.Join(testenv.Repository(t), "docs", "kubernetes.md")} {
			_, text, _ := strings.Cut(readText(t, page), "```yaml\n# values.yaml\n")
			text, _, found := strings.Cut(text, "```")
			if !found {
				t.Fatalf("%s: no values", page)
			}
			file := filepath.Join(t.TempDir(), "values.yaml")
			testenv.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			newPod(t, c.render(t, readYAML[values](t, file)), nil).validate()
		}
	})
}

// TestDocumentedSidecar requires that what the documentation shows of the example is in the example.
func TestDocumentedSidecar(t *testing.T) {
	t.Parallel()
	root := testenv.Repository(t)
	example := trimLines(readText(t, filepath.Join(root, "examples", "kubernetes", "sidecar.yaml")))
	blocks := strings.Split(readText(t, filepath.Join(root, "docs", "kubernetes.md")), "```yaml\n# of examples/kubernetes/sidecar.yaml\n")[1:]
	for _, block := range blocks {
		shown, _, _ := strings.Cut(block, "```")
		if !strings.Contains(example, trimLines(shown)) {
			t.Errorf("not in the example:\n%s", shown)
		}
	}
	if len(blocks) != 2 {
		t.Errorf("%d blocks", len(blocks))
	}
}

// trimLines returns a text without indentation.
func trimLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// TestTermination compares the least terminationGracePeriodSeconds, a second more than the server takes, with what the server reports.
func TestTermination(t *testing.T) {
	t.Parallel()
	charts(t, func(t *testing.T, c chart) {
		help, err := exec.CommandContext(t.Context(), program(t), "serve", "--help").Output()
		testenv.NoError(t, err)
		found := regexp.MustCompile(`within (\d+) seconds`).FindSubmatch(help)
		if found == nil {
			t.Fatalf("no time in:\n%s", help)
		}
		seconds, err := strconv.Atoi(string(found[1]))
		testenv.NoError(t, err)
		if _, err := c.template(t, merge(minimal, values{"preStopSeconds": 10, "terminationGracePeriodSeconds": 10 + seconds + 1})); err != nil {
			t.Error(err)
		}
		if _, err := c.template(t, merge(minimal, values{"preStopSeconds": 10, "terminationGracePeriodSeconds": 10 + seconds})); err == nil {
			t.Errorf("%d seconds are accepted after preStopSeconds, and the server takes as many", seconds)
		}
	})
}
