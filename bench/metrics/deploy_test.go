package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/bench/internal/promapi"
	"github.com/headgate/headgate/internal/region"
	"github.com/headgate/headgate/internal/regiongrpc"
	"github.com/headgate/headgate/internal/server/telemetry"
	"github.com/headgate/headgate/internal/testenv"
)

func TestPromtool(t *testing.T) {
	d := readDeploy(t, "../../deploy")
	if output, err := promtool(t, "", "test", "rules", d.testsFile); err != nil {
		t.Error(output)
	}
	// As recording rules, so that promtool checks every expression of the dashboard.
	var file ruleFile
	file.Groups = append(file.Groups, d.rules.Groups[0])
	file.Groups[0].Rules = nil
	for i, q := range d.dashboard.Queries() {
		file.Groups[0].Rules = append(file.Groups[0].Rules, rule{Record: fmt.Sprintf("query:%d", i), Expr: q.Expr})
	}
	text, err := yaml.Marshal(&file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := promtool(t, "", "check", "rules", path); err != nil {
		t.Error(output)
	}
}

var label = regexp.MustCompile(`\$labels\.(\w+)`)

// TestAlertsAreTestedAndDocumented: each alert has a test in which it fires and a near miss does not, a description with the first
// step, and a section in the documentation.
func TestAlertsAreTestedAndDocumented(t *testing.T) {
	d := readDeploy(t, "../../deploy")
	tests, err := os.ReadFile(d.testsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			Input []struct{ Series string } `yaml:"input_series"`
			Exprs []struct {
				Expr    string
				Samples []struct{ Labels string } `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	if err := yaml.Unmarshal(tests, &file); err != nil {
		t.Fatal(err)
	}
	fires, missed := map[string]string{}, map[string]bool{} // by expression; fires has the labels
	for _, test := range file.Tests {
		near := false
		for _, in := range test.Input {
			near = near || strings.Contains(in.Series, `="near`)
		}
		for _, e := range test.Exprs {
			if len(e.Samples) > 0 {
				fires[e.Expr], missed[e.Expr] = e.Samples[0].Labels, near
			}
		}
	}
	docs, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range d.rules.alerts() {
		firing := fmt.Sprintf("ALERTS{alertname=%q,alertstate=\"firing\"}", a.Alert)
		if fires[firing] == "" || !missed[firing] {
			t.Errorf("%s: no test in which it fires and a near miss does not", a.Alert)
		}
		if severity := a.Labels["severity"]; severity != "page" && severity != "warning" {
			t.Errorf("%s: severity %q", a.Alert, severity)
		}
		if a.Annotations["summary"] == "" || !strings.Contains(a.Annotations["description"], " First step: ") {
			t.Errorf("%s: want a summary, and a description with the first command", a.Alert)
		}
		for _, label := range label.FindAllStringSubmatch(fmt.Sprint(a.Annotations), -1) {
			if !strings.Contains(fires[firing], label[1]+"=") {
				t.Errorf("%s: the alert has no label %s", a.Alert, label[1])
			}
		}
		want := "https://github.com/headgate/headgate/blob/main/docs/operations.md#" + strings.ToLower(a.Alert)
		if got := a.Annotations["runbook_url"]; got != want {
			t.Errorf("%s: runbook %s, want %s", a.Alert, got, want)
		}
		if !strings.Contains(string(docs), "\n### "+a.Alert+"\n") {
			t.Errorf("%s: no section in docs/operations.md", a.Alert)
		}
	}
}

func TestDashboard(t *testing.T) {
	d := readDeploy(t, "../../deploy").dashboard
	if d.SchemaVersion < 36 {
		t.Errorf("schemaVersion %d: panels that name their data source by uid need 36", d.SchemaVersion)
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
	}
	if want := []string{"datasource", "job", "instance"}; !slices.Equal(names, want) {
		t.Errorf("variables %v, want %v", names, want)
	}
	ids := map[int]string{}
	for i, p := range d.Panels {
		if other, taken := ids[p.ID]; taken {
			t.Errorf("%s has the id of %s", p.Title, other)
		}
		ids[p.ID] = p.Title
		g := p.GridPos
		if g.W <= 0 || g.H <= 0 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s: invalid position %v", p.Title, g)
		}
		for _, other := range d.Panels[:i] {
			o := other.GridPos
			if g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
				t.Errorf("%s overlaps %s", p.Title, other.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s: unit %q, data source %q, %d targets", p.Title, p.FieldConfig.Defaults.Unit, p.Datasource.UID, len(p.Targets))
		}
		for _, target := range p.Targets {
			if target.Expr == "" || strings.Contains(promapi.Variables.Replace(target.Expr), "$") {
				t.Errorf("%s: %q is empty or has an unknown variable", p.Title, target.Expr)
			}
		}
	}
}

// TestMetricsExist: servers export every metric that the rules and the dashboard use.
func TestMetricsExist(t *testing.T) {
	d := readDeploy(t, "../../deploy")
	w := start(t, d)
	exported := map[string]bool{}
	texts := []string{regionMetrics()}
	for _, n := range w.nodes {
		for _, r := range append(usualRequests, request{"/small", "eve", ""}) {
			testenv.NoError(t, check(t.Context(), n, r))
		}
		text, err := n.Metrics(t.Context())
		testenv.NoError(t, err)
		texts = append(texts, text)
	}
	for _, text := range texts {
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
			exported[m[1]] = true
			switch m[2] {
			case "histogram":
				exported[m[1]+"_bucket"] = true
			case "summary":
				exported[m[1]+"_sum"], exported[m[1]+"_count"] = true, true
			}
		}
	}
	var exprs []string
	for _, g := range d.rules.Groups {
		for _, r := range g.Rules {
			exported[r.Record] = true
			exprs = append(exprs, r.Expr)
		}
	}
	for _, q := range d.dashboard.Queries() {
		exprs = append(exprs, q.Expr)
	}
	for _, expr := range exprs {
		for _, name := range names(expr) {
			if !exported[name] {
				t.Errorf("no server exports %s, used in %s", name, expr)
				exported[name] = true // report it once
			}
		}
	}
}

// regionMetrics returns the metrics that only a server with other regions exports.
func regionMetrics() string {
	m := telemetry.New("")
	m.Regions(func() region.Stats { return region.Stats{Rejected: map[string]int64{"no_units": 1}} }, func() []regiongrpc.State {
		return []regiongrpc.State{{Peer: "us", LastContact: time.Now()}}
	})
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return w.Body.String()
}

var name = regexp.MustCompile(`\b(?:headgate|process|go)[_:][a-z0-9_:]+`)

// names returns the metrics in an expression, including recorded ones.
func names(expr string) []string { return name.FindAllString(expr, -1) }
