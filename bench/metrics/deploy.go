package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/testenv"
)

// deploy holds the files that operators load into Prometheus and Grafana.
type deploy struct {
	rulesFile, testsFile string
	rules                ruleFile
	dashboard            dashboard
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

// dashboard has the fields of a Grafana dashboard that the tests use.
type dashboard struct {
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ UID string }
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
	Targets []struct{ RefID, Expr string }
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
	text, err = os.ReadFile(filepath.Join(dir, "grafana", "headgate.json"))
	testenv.NoError(t, err)
	testenv.NoError(t, json.Unmarshal(text, &d.dashboard))
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

// variables replaces the variables of the dashboard as Grafana does for all nodes.
var variables = strings.NewReplacer("$job", ".*headgate.*", "$instance", ".*", "$__rate_interval", "20s")

// query is one query of a panel.
type query struct{ panel, expr string }

// queries returns all queries, with variables replaced.
func (d *dashboard) queries() (all []query) {
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			all = append(all, query{p.Title + " " + t.RefID, variables.Replace(t.Expr)})
		}
	}
	return all
}
