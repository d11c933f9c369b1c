package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/promapi"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

// prometheus is a running Prometheus server.
type prometheus struct {
	promapi.Server
	name string
}

// startPrometheus starts a Prometheus that scrapes targets, by job, and evaluates rules every second.
func startPrometheus(scope testing.TB, name, rules string, jobs map[string][]string, flags ...string) *prometheus {
	address := testenv.FreeAddress(scope)
	dir := scope.TempDir()
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n" +
		"rule_files: [rules.yaml]\nscrape_configs:\n")
	for job, targets := range jobs {
		fmt.Fprintf(&config, "  - {job_name: %s, static_configs: [{targets: [%s]}]}\n", job, strings.Join(targets, ", "))
	}
	testenv.WriteFiles(scope, dir, map[string]string{"prometheus.yaml": config.String(), "rules.yaml": rules})
	flags = append(flags, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	testenv.Run(scope, exec.Command(testenv.Find(scope, "prometheus"), flags...), address) //nolint:noctx // the scope ends it
	return &prometheus{promapi.Server(address), name}
}

// awaitScrapes returns when rules were evaluated on more than one scrape of all jobs. Prometheus listens before it is ready.
func (p *prometheus) awaitScrapes(t *suite.Scope) {
	for deadline := time.Now().Add(patience); ; suite.Sleep(200 * time.Millisecond) {
		jobs, err := p.Query(t.Context(), "headgate:check_duration_seconds:p99_rate5m > 0")
		if len(jobs) == 2 {
			return
		}
		if time.Now().After(deadline) || t.Context().Err() != nil {
			t.Fatalf("%s: %d of 2 jobs scraped after %v: %v", p.name, len(jobs), patience, err)
		}
	}
}

// alert is the state of a rule in Prometheus.
type alert struct {
	Name, Type, State, Health, LastError string
	Alerts                               []struct{ Annotations map[string]string }
}

// rules returns all loaded rules, including recording rules.
func (p *prometheus) rules(t *suite.Scope) (all []alert) {
	var data struct {
		Groups []struct{ Rules []alert }
	}
	testenv.NoError(t, p.Get(t.Context(), "/api/v1/rules", &data))
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// await returns the firing alerts as soon as all wanted ones fire, or when patience is over.
func (p *prometheus) await(t *suite.Scope, wanted []string, patience time.Duration) map[string]alert {
	for deadline := time.Now().Add(patience); ; suite.Sleep(200 * time.Millisecond) {
		firing, missing := map[string]alert{}, slices.Clone(wanted)
		for _, a := range p.rules(t) {
			if a.State == "firing" {
				firing[a.Name] = a
				missing = slices.DeleteFunc(missing, func(name string) bool { return name == a.Name })
			}
		}
		if len(missing) == 0 || time.Now().After(deadline) {
			return firing
		}
	}
}
