package charttest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// fakeCluster starts an API server that has nothing but Secrets with a token, by name, and returns its URL. "make e2e-kube" has a real
// one, which takes too long to build for every check.
func fakeCluster(t *testing.T, tokens map[string]string) string {
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
	reply("GET /apis", values{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}})
	reply("GET /api/v1", values{"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{
		values{"name": "secrets", "namespaced": true, "kind": "Secret", "verbs": []string{"get"}},
	}})
	for name, token := range tokens {
		reply("GET /api/v1/namespaces/shop/secrets/"+name, values{
			"apiVersion": "v1", "kind": "Secret", "metadata": values{"name": name, "namespace": "shop"},
			"data": values{"token": base64.StdEncoding.EncodeToString([]byte(token))},
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}
