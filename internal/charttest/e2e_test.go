package charttest

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// controlPlane is a cluster without a kubelet: pods are admitted, created and scheduled, but do not run.
type controlPlane struct {
	t          *testing.T
	url        string
	kubeconfig string
	client     *http.Client
}

const clusterToken = "token-of-the-test" //nolint:gosec // G101: of a server of this test

// startControlPlane starts etcd, the API server, the controller manager and the scheduler.
func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	testenv.NoError(t, err)
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	address := testenv.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	files := map[string]string{
		"accounts.key": string(private),
		"tokens.csv":   clusterToken + `,admin,1,"system:masters"`,
		"kubeconfig": fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://%s", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, address, clusterToken),
	}
	testenv.WriteFiles(t, dir, files)
	file := func(name string) string { return filepath.Join(dir, name) }
	run := func(name string, args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), testenv.Find(t, name), args...)
	}

	etcd, peers := testenv.FreeAddress(t), testenv.FreeAddress(t)
	testenv.Run(t, run("etcd", "--data-dir", file("etcd"), "--listen-client-urls", "http://"+etcd, "--advertise-client-urls", "http://"+etcd,
		"--listen-peer-urls", "http://"+peers, "--initial-advertise-peer-urls", "http://"+peers, "--initial-cluster", "default=http://"+peers,
		"--unsafe-no-fsync"), etcd)
	testenv.Run(t, run("kube-apiserver", "--etcd-servers", "http://"+etcd, "--bind-address", host, "--advertise-address", host, "--secure-port", port,
		"--cert-dir", dir,
		"--token-auth-file", file("tokens.csv"), "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24",
		"--service-account-issuer", "https://test", "--service-account-key-file", file("accounts.key"),
		"--service-account-signing-key-file", file("accounts.key"), "--endpoint-reconciler-type", "none"), address)
	c := &controlPlane{t: t, url: "https://" + address, kubeconfig: file("kubeconfig"), client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // G402: a certificate that the server has just signed itself
	}}}
	eventually(t, "API server", func() bool { status, _ := c.call("GET", "/readyz", nil); return status == http.StatusOK })
	testenv.Spawn(t, run("kube-controller-manager", "--kubeconfig", c.kubeconfig, "--service-account-private-key-file", file("accounts.key"),
		"--leader-elect=false", "--secure-port=0", "--controllers=*,-node-lifecycle-controller")) // it would take the node for dead
	testenv.Spawn(t, run("kube-scheduler", "--kubeconfig", c.kubeconfig, "--leader-elect=false", "--secure-port=0"))
	return c
}

// call sends a request to the API server, and returns the status and the object.
func (c *controlPlane) call(method, path string, body values) (int, values) {
	c.t.Helper()
	text, err := json.Marshal(body)
	testenv.NoError(c.t, err)
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader(text))
	testenv.NoError(c.t, err)
	request.Header.Set("Authorization", "Bearer "+clusterToken)
	request.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := c.client.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	testenv.NoError(c.t, err)
	var object values
	_ = json.Unmarshal(text, &object) // /readyz has text
	return response.StatusCode, object
}

// must sends a request that must succeed.
func (c *controlPlane) must(method, path string, body values) values {
	c.t.Helper()
	status, object := c.call(method, path, body)
	if status < 200 || status > 299 {
		c.t.Fatalf("%s %s: %d %v", method, path, status, object)
	}
	return object
}

// addNode creates a node that is ready and has resources.
func (c *controlPlane) addNode() {
	c.t.Helper()
	c.must("POST", "/api/v1/nodes", values{"apiVersion": "v1", "kind": "Node", "metadata": values{"name": "node"}})
	c.must("PATCH", "/api/v1/nodes/node", values{"spec": values{"taints": nil}}) // admission taints it as not ready
	resources := values{"cpu": "8", "memory": "16Gi", "pods": "100"}
	c.must("PATCH", "/api/v1/nodes/node/status", values{"status": values{
		"capacity": resources, "allocatable": resources,
		"conditions": []any{values{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
	}})
}

// TestCluster installs, upgrades and rolls back the chart in a namespace that enforces the Pod Security Standard restricted.
func TestCluster(t *testing.T) {
	if os.Getenv("HEADGATE_CHART") != "e2e" {
		t.Skip("make e2e-kube runs it")
	}
	c := startControlPlane(t)
	c.addNode()
	for _, helm := range []string{"helm", "helm4"} {
		t.Run(helm, func(t *testing.T) {
			release := &release{t: t, c: c, chart: chart{testenv.Find(t, helm), chartDir(t)}, namespace: "limits-" + helm}
			release.live()
		})
	}
}

// release is a release of the chart, with its name headgate.
type release struct {
	t         *testing.T
	c         *controlPlane
	chart     chart
	namespace string
}

// helm runs a Helm command in the cluster.
func (r *release) helm(args ...string) string {
	r.t.Helper()
	out, err := r.chart.run(r.t, append(args, "--kubeconfig", r.c.kubeconfig, "--namespace", r.namespace)...)
	testenv.NoError(r.t, err)
	return string(out)
}

// get returns an object of the namespace.
func (r *release) get(path string) values {
	r.t.Helper()
	for prefix, version := range map[string]string{"deployments": "/apis/apps/v1", "replicasets": "/apis/apps/v1"} {
		if strings.HasPrefix(path, prefix) {
			return r.c.must("GET", version+"/namespaces/"+r.namespace+"/"+path, nil)
		}
	}
	return r.c.must("GET", "/api/v1/namespaces/"+r.namespace+"/"+path, nil)
}

// scheduled returns the number of pods of a config that are on a node.
func (r *release) scheduled(checksum string) (n int) {
	r.t.Helper()
	for _, pod := range at[[]any](r.get("pods"), "items") {
		if at[string](pod, "spec", "nodeName") != "" && at[string](pod, "metadata", "annotations", "checksum/config") == checksum {
			n++
		}
	}
	return n
}

// live goes through the life of a release.
func (r *release) live() {
	t, c := r.t, r.c
	c.must("POST", "/api/v1/namespaces", values{"apiVersion": "v1", "kind": "Namespace", "metadata": values{
		"name": r.namespace, "labels": values{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
	bad := values{"apiVersion": "v1", "kind": "Pod", "metadata": values{"name": "bad"}, "spec": values{
		"containers": []any{values{"name": "a", "image": "a"}}, // may run as root
	}}
	eventually(t, "service account", func() bool {
		status, _ := c.call("GET", "/api/v1/namespaces/"+r.namespace+"/serviceaccounts/default", nil)
		return status == http.StatusOK
	})
	if status, reply := c.call("POST", "/api/v1/namespaces/"+r.namespace+"/pods", bad); status != http.StatusForbidden || !strings.Contains(fmt.Sprint(reply), "restricted") {
		t.Fatalf("the namespace does not enforce restricted: %d %v", status, reply)
	}

	files := filepath.Join(r.chart.dir, "ci", "minimal-values.yaml")
	args := []string{"headgate", r.chart.dir, "--values", files}
	if out := r.helm(append([]string{"install"}, args...)...); !strings.Contains(out, "get secret headgate-caller") {
		t.Errorf("notes of the installation:\n%s", out)
	}
	before := r.get("deployments/headgate")
	checksum := func(deployment values) string {
		return at[string](deployment, "spec", "template", "metadata", "annotations", "checksum/config")
	}
	eventually(t, "pods on the node", func() bool { return r.scheduled(checksum(before)) == 2 })
	generated := r.get("secrets/headgate-caller")
	lines, err := base64.StdEncoding.DecodeString(at[string](generated, "data", "tokens"))
	testenv.NoError(t, err)
	secret := c.must("PATCH", "/api/v1/namespaces/"+r.namespace+"/secrets/headgate-caller", values{
		"stringData": values{"tokens": string(lines) + tokenLine("hgt_gateway", "gateway caller")},
	})
	expectSame := func(what string) {
		t.Helper()
		if got := r.get("secrets/headgate-caller"); !reflect.DeepEqual(got["data"], secret["data"]) {
			t.Errorf("%s: another token: %v, before %v", what, got["data"], secret["data"])
		}
	}

	// Other rules: the ConfigMap changes, the pods do not.
	args = append(args, "--set-json", `rules.files={"other.yaml": {"rules": [{"id": "other", "by": [], "limit": "1/hour"}]}}`)
	r.helm(append([]string{"upgrade"}, args...)...)
	after := r.get("deployments/headgate")
	if !reflect.DeepEqual(at[any](after, "spec", "template"), at[any](before, "spec", "template")) ||
		at[any](after, "metadata", "generation") != at[any](before, "metadata", "generation") {
		t.Error("a change of the rules changes the Deployment")
	}
	if rules := at[values](r.get("configmaps/headgate-rules"), "data"); rules["other.yaml"] == nil {
		t.Errorf("the rules did not change: %v", rules)
	}
	expectSame("upgrade of the rules")

	// Another config: new pods.
	r.helm(append([]string{"upgrade"}, append(args, "--set", "config.mode=shadow")...)...)
	shadow := checksum(r.get("deployments/headgate"))
	if shadow == checksum(before) {
		t.Error("a change of the config does not restart pods")
	}
	eventually(t, "a pod with the new config", func() bool { return r.scheduled(shadow) > 0 })
	expectSame("upgrade of the config")

	// One pod that counts in memory: the API server accepts the strategy.
	r.helm(append([]string{"upgrade"}, append(args, "--set", "store=memory,replicaCount=1,redis.address=")...)...)
	if got := at[values](r.get("deployments/headgate"), "spec", "strategy"); !reflect.DeepEqual(got, values{"type": "Recreate"}) {
		t.Errorf("counters in memory: strategy %v", got)
	}
	expectSame("upgrade to counters in memory")

	rollback := []string{"rollback", "headgate", "1"}
	if filepath.Base(r.chart.helm) == "helm4" {
		rollback = append(rollback, "--force-conflicts") // the added line is not by Helm
	}
	r.helm(rollback...)
	if got := checksum(r.get("deployments/headgate")); got != checksum(before) {
		t.Errorf("after the rollback: config %s, want %s", got, checksum(before))
	}
	if rules := at[values](r.get("configmaps/headgate-rules"), "data"); rules["other.yaml"] != nil {
		t.Errorf("the rollback kept the rules: %v", rules)
	}
	secret = generated // the lines are those of the revision
	expectSame("rollback")

	r.helm("uninstall", "headgate")
	if status, _ := c.call("GET", "/api/v1/namespaces/"+r.namespace+"/secrets/headgate-caller", nil); status != http.StatusNotFound {
		t.Errorf("the Secret outlives the release: %d", status)
	}
}
