package attack

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/internal/testenv"
)

// readiness is the response of /readyz.
type readiness struct {
	code   int
	Status string
	Rules  struct{ Problem string }
}

func readinessOf(t *testing.T, node *fleet.Node) (r readiness) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+node.Ops+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	r.code = response.StatusCode
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// awaitReadiness waits until /readyz has a status.
func awaitReadiness(t *testing.T, node *fleet.Node, code int, status string) readiness {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		r := readinessOf(t, node)
		if r.code == code && r.Status == status {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("/readyz: %d %+v, want %d %s", r.code, r, code, status)
		}
	}
}

// startNode starts a server with a config, and a rule file if rules is not empty.
func startNode(t *testing.T, config, rules string) *fleet.Node {
	t.Helper()
	node := fleet.New(t, headgateProgram(t), config, nil)
	if rules != "" {
		node.Write("rules.yaml", rules)
	}
	if strings.Contains(config, "postgres") {
		migrate := exec.CommandContext(t.Context(), headgateProgram(t), "migrate", "--config", filepath.Join(node.Dir, "config.yaml"))
		if out, err := migrate.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	node.Start()
	return node
}

// wantServing checks the status of all services in gRPC's health service.
func wantServing(t *testing.T, node *fleet.Node, want healthv1.HealthCheckResponse_ServingStatus) {
	t.Helper()
	conn, err := grpc.NewClient(node.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, service := range []string{"", "envoy.service.ratelimit.v3.RateLimitService"} {
		r, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil || r.GetStatus() != want {
			t.Errorf("service %q: %v, %v, want %v", service, r, err, want)
		}
	}
}

// wantLogged checks how often the log has words. It waits for them: a server is ready a moment before it logs why.
func wantLogged(t *testing.T, node *fleet.Node, times int, words string) {
	t.Helper()
	n := strings.Count(node.Output(), words)
	for deadline := time.Now().Add(20 * time.Second); n < times && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		n = strings.Count(node.Output(), words)
	}
	if n != times {
		t.Errorf("the log has %q %d times, want %d", words, n, times)
	}
}

const (
	noRulesLogged = "there are no rules: every request is allowed"
	rulesLogged   = "rules available: requests are limited"
	oneRule       = "rules: [{id: api, by: [ip], limit: 10/minute}]\n"
)

// TestServerWithoutRules: an operator who forgets to publish rules, or deploys an empty file, has servers that allow everything.
// Such a server must not become ready and replace one with rules.
func TestServerWithoutRules(t *testing.T) {
	redis := startRedis(t)
	store := fmt.Sprintf("redis: {address: redis://%s}\n", redis.Addr())
	t.Run("PostgreSQL", func(t *testing.T) {
		c := &controlPlane{t: t, postgres: testenv.StartPostgres(t)}
		config := store + fmt.Sprintf("postgres: {address: %q}\n", c.postgres.URL())
		node := startNode(t, config, "")
		r := readinessOf(t, node)
		t.Logf("without rules /readyz: %d %+v", r.code, r)
		if r.code != http.StatusServiceUnavailable || r.Status != "not_ready" {
			t.Errorf("without rules /readyz: %d %s", r.code, r.Status)
		}
		wantWords(t, r.Rules.Problem, "no rules", "every request is allowed", "headgate rules apply FILE", "allow_no_rules: true")
		wantLogged(t, node, 1, noRulesLogged)
		allowed := startNode(t, config+"allow_no_rules: true\n", "")
		if r := readinessOf(t, allowed); r.code != http.StatusOK || r.Status != "ok" {
			t.Errorf("allow_no_rules: /readyz: %d %+v", r.code, r)
		}
		wantLogged(t, allowed, 0, noRulesLogged)
		c.publish(`{"id": "api", "by": ["ip"], "limit": "10/minute"}`)
		awaitReadiness(t, node, http.StatusOK, "ok")
		wantLogged(t, node, 1, rulesLogged)
		// Nodes reject an empty set from the tables: they keep their rules and report it.
		if c.count("WITH off AS (UPDATE rate_limit_rules SET enabled = false RETURNING 1) SELECT count(*) FROM off") != 1 {
			t.Fatal("nothing was disabled")
		}
		r = awaitReadiness(t, node, http.StatusOK, "degraded")
		wantWords(t, r.Rules.Problem, "no rule would")
		wantLogged(t, node, 1, noRulesLogged)
	})
	t.Run("files", func(t *testing.T) {
		node := startNode(t, store+"rules: [rules.yaml]\n", "rules: []\n")
		r := readinessOf(t, node)
		t.Logf("without rules /readyz: %d %+v", r.code, r)
		if r.code != http.StatusServiceUnavailable || r.Status != "not_ready" {
			t.Errorf("without rules /readyz: %d %s", r.code, r.Status)
		}
		wantWords(t, r.Rules.Problem, "no rules", "rules.yaml", "allow_no_rules: true")
		wantServing(t, node, healthv1.HealthCheckResponse_NOT_SERVING)
		wantLogged(t, node, 1, noRulesLogged)
		write := func(text string) { node.Write("rules.yaml", text) }
		write(oneRule)
		awaitReadiness(t, node, http.StatusOK, "ok")
		wantServing(t, node, healthv1.HealthCheckResponse_SERVING)
		// Removing all rules of a running server leaves it ready: otherwise all servers would become unavailable at once.
		write("rules: []\n")
		r = awaitReadiness(t, node, http.StatusOK, "degraded")
		wantWords(t, r.Rules.Problem, "no rules", "every request is allowed")
		wantServing(t, node, healthv1.HealthCheckResponse_SERVING)
		wantLogged(t, node, 1, "all rules were removed: every request is allowed")
		write(oneRule)
		awaitReadiness(t, node, http.StatusOK, "ok")
		wantLogged(t, node, 2, rulesLogged)
	})
}
