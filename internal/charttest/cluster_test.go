package charttest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// fakeCluster starts an API server that knows the kinds of the chart and has Secrets, by name, and returns its URL. "make e2e-kube" has a real
// one, which takes too long to build for every check.
func fakeCluster(t *testing.T, secrets map[string]map[string]string) string {
	t.Helper()
	mux := http.NewServeMux()
	reply := func(pattern string, body any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body) // the test fails without it
		})
	}
	reply("GET /version", values{"major": "1", "minor": "36", "gitVersion": "v" + kubeVersion})
	reply("GET /api", values{"kind": "APIVersions", "versions": []string{"v1"}})
	reply("GET /api/v1", resources("v1", "Secret", "ConfigMap", "Service", "ServiceAccount", "Pod"))
	reply("GET /apis/apps/v1", resources("apps/v1", "Deployment"))
	reply("GET /apis/policy/v1", resources("policy/v1", "PodDisruptionBudget"))
	var groups []any
	for _, name := range []string{"apps", "policy"} {
		version := values{"groupVersion": name + "/v1", "version": "v1"}
		groups = append(groups, values{"name": name, "versions": []any{version}, "preferredVersion": version})
	}
	reply("GET /apis", values{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
	for name, content := range secrets {
		data := values{}
		for key, text := range content {
			data[key] = base64.StdEncoding.EncodeToString([]byte(text))
		}
		reply("GET /api/v1/namespaces/shop/secrets/"+name, values{
			"apiVersion": "v1", "kind": "Secret", "metadata": values{
				"name": name, "namespace": "shop", "labels": values{"app.kubernetes.io/managed-by": "Helm"},
				"annotations": values{"meta.helm.sh/release-name": "demo", "meta.helm.sh/release-namespace": "shop"},
			},
			"data": data,
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// resources describes the kinds of a version of the API.
func resources(version string, kinds ...string) values {
	var all []any
	for _, kind := range kinds {
		all = append(all, values{"name": strings.ToLower(kind) + "s", "namespaced": true, "kind": kind, "verbs": []string{"get"}})
	}
	return values{"kind": "APIResourceList", "groupVersion": version, "resources": all}
}
