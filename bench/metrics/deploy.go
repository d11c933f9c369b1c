package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/bench/internal/promapi"
	"github.com/headgate/headgate/internal/testenv"
)

// deploy holds the files that operators load into Prometheus and Grafana.
type deploy struct {
	rulesFile, testsFile string
	rules                ruleFile
	dashboard            promapi.Dashboard
}

// ruleFile is a Prometheus rule file.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

// rule is a recording rule or an alert.
type rule struct {
	Record      string            `yaml:",omitempty"`
	Alert       string            `yaml:",omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:",omitempty"`
	Labels      map[string]string `yaml:",omitempty"`
	Annotations map[string]string `yaml:",omitempty"`
}

// readDeploy reads the repository's deploy directory.
func readDeploy(t testing.TB, dir string) *deploy {
	t.Helper()
	d := &deploy{
		rulesFile: filepath.Join(dir, "prometheus", "headgate.rules.yaml"),
		testsFile: filepath.Join(dir, "prometheus", "headgate.rules_test.yaml"),
	}
	text, err := os.ReadFile(d.rulesFile)
	testenv.NoError(t, err)
	testenv.NoError(t, yaml.Unmarshal(text, &d.rules))
	d.dashboard = promapi.ReadDashboard(t, dir)
	return d
}

// alerts returns all alerting rules.
func (f *ruleFile) alerts() (all []rule) {
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				all = append(all, r)
			}
		}
	}
	return all
}

// removeDelays makes alerts fire as soon as their expression is true.
func (f *ruleFile) removeDelays(alerts []string) {
	for _, g := range f.Groups {
		for i := range g.Rules {
			if slices.Contains(alerts, g.Rules[i].Alert) {
				g.Rules[i].For = ""
			}
		}
	}
}
