package promapi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testenv"
)

// Dashboard has the fields of a Grafana dashboard that tests use.
type Dashboard struct {
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Panels []Panel
}

// Panel is a panel or a row of a dashboard.
type Panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ UID string }
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
	Targets []struct{ RefID, Expr string }
}

// ReadDashboard reads the dashboard of the repository's deploy directory.
func ReadDashboard(t testing.TB, deploy string) (d Dashboard) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "grafana", "headgate.json"))
	testenv.NoError(t, err)
	testenv.NoError(t, json.Unmarshal(text, &d))
	return d
}

// Variables replaces the variables of the dashboard as Grafana does for all nodes.
var Variables = strings.NewReplacer("$job", ".*headgate.*", "$instance", ".*", "$__rate_interval", "20s")

// Query is one query of a panel.
type Query struct{ Name, Expr string }

// Queries returns all queries, with variables replaced.
func (d *Dashboard) Queries() (all []Query) {
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			all = append(all, Query{p.Title + " " + t.RefID, Variables.Replace(t.Expr)})
		}
	}
	return all
}
