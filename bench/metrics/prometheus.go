package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/suite"
	"github.com/headgate/headgate/internal/testenv"
)

// prometheus is a real one.
type prometheus struct{ name, address string }

// startPrometheus has it scrape targets, by job, and evaluate rules every second.
func startPrometheus(scope testing.TB, name, rules string, jobs map[string][]string, flags ...string) *prometheus {
	p := &prometheus{name, testenv.FreeAddress(scope)}
	dir := scope.TempDir()
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n" +
		"rule_files: [rules.yaml]\nscrape_configs:\n")
	for job, targets := range jobs {
		fmt.Fprintf(&config, "  - {job_name: %s, static_configs: [{targets: [%s]}]}\n", job, strings.Join(targets, ", "))
	}
	testenv.WriteFiles(scope, dir, map[string]string{"prometheus.yaml": config.String(), "rules.yaml": rules})
	flags = append(flags, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.address, "--log.level=warn")
	testenv.Run(scope, exec.Command(testenv.Find(scope, "prometheus"), flags...), p.address) //nolint:noctx // the scope ends it
	return p
}

// get asks its API.
func (p *prometheus) get(ctx context.Context, path string, data any) error {
	text, status, err := fleet.Fetch(ctx, http.DefaultClient, http.MethodGet, "http://"+p.address+path, "")
	if err != nil {
		return err
	}
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%s: %d: %w", p.name, status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", p.name, answer.Error)
	}
	return nil
}

// sample is one series of an answer.
type sample struct {
	Value [2]any // when, and what as text
}

func (p *prometheus) query(ctx context.Context, expr string) ([]sample, error) {
	var data struct{ Result []sample }
	if err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return data.Result, nil
}

// seen returns when rules were evaluated on what was scraped from all jobs, more than once. Prometheus listens before it answers.
func (p *prometheus) seen(t *suite.Scope) {
	for end := time.Now().Add(patience); ; suite.Sleep(200 * time.Millisecond) {
		jobs, err := p.query(t.Context(), "headgate:check_duration_seconds:p99_rate5m > 0")
		if len(jobs) == 2 {
			return
		}
		if time.Now().After(end) || t.Context().Err() != nil {
			t.Fatalf("%s: %d of 2 jobs scraped after %v: %v", p.name, len(jobs), patience, err)
		}
	}
}

// alert is what Prometheus says of a rule that alerts.
type alert struct {
	Name, Type, State, Health, LastError string
	Alerts                               []struct{ Annotations map[string]string }
}

// rules are all that are loaded, those that record too.
func (p *prometheus) rules(t *suite.Scope) (all []alert) {
	var data struct {
		Groups []struct{ Rules []alert }
	}
	testenv.NoError(t, p.get(t.Context(), "/api/v1/rules", &data))
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// await returns those that fire, once all that are wanted do or it has taken too long.
func (p *prometheus) await(t *suite.Scope, wanted []string, patience time.Duration) map[string]alert {
	for end := time.Now().Add(patience); ; suite.Sleep(200 * time.Millisecond) {
		firing, missing := map[string]alert{}, slices.Clone(wanted)
		for _, a := range p.rules(t) {
			if a.State == "firing" {
				firing[a.Name] = a
				missing = slices.DeleteFunc(missing, func(name string) bool { return name == a.Name })
			}
		}
		if len(missing) == 0 || time.Now().After(end) {
			return firing
		}
	}
}
