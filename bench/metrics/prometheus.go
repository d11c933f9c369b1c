package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

// prometheus is a real one.
type prometheus struct {
	name    string
	address string
	client  *http.Client
}

// startPrometheus has it scrape targets, by job, and evaluate rules every second.
func startPrometheus(scope testing.TB, name string, rules []byte, jobs map[string][]string, flags ...string) (*prometheus, error) {
	p := &prometheus{name, testenv.FreeAddress(scope), &http.Client{Timeout: 10 * time.Second}}
	dir := scope.TempDir()
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n" +
		"rule_files: [rules.yaml]\nscrape_configs:\n")
	for job, targets := range jobs {
		list, _ := json.Marshal(targets) // strings always can be
		fmt.Fprintf(&config, "  - {job_name: %s, static_configs: [{targets: %s}]}\n", job, list)
	}
	for file, text := range map[string]string{"prometheus.yaml": config.String(), "rules.yaml": string(rules)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	flags = append(flags, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.address, "--log.level=warn")
	testenv.Run(scope, exec.Command(testenv.Find(scope, "prometheus"), flags...), p.address) //nolint:noctx // the scope ends it
	return p, nil
}

// get asks its API.
func (p *prometheus) get(ctx context.Context, path string, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", p.name, response.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", p.name, answer.Error)
	}
	return nil
}

// sample is one series of an answer.
type sample struct {
	Metric map[string]string
	Value  [2]any // when, and what as text
}

// number is true if the value is one.
func (s *sample) number() bool { return s.Value[1] != "NaN" }

func (p *prometheus) query(ctx context.Context, expr string) ([]sample, error) {
	var data struct{ Result []sample }
	if err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return data.Result, nil
}

// seen returns when rules were evaluated on what was scraped from all jobs, more than once. Prometheus listens before it answers.
func (p *prometheus) seen(ctx context.Context) error {
	for end := time.Now().Add(patience); ; paired.Sleep(200 * time.Millisecond) {
		jobs, err := p.query(ctx, "headgate:check_duration_seconds:p99_rate5m > 0")
		if len(jobs) == 2 {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return errors.Join(fmt.Errorf("%s: %d of 2 jobs scraped after %v", p.name, len(jobs), patience), err)
		}
	}
}

// alert is what Prometheus says of a rule that alerts.
type alert struct {
	Name, Type, State, Health, LastError string
	Alerts                               []struct{ Annotations map[string]string }
}

// rules are all that are loaded, those that record too.
func (p *prometheus) rules(ctx context.Context) (all []alert, err error) {
	var data struct {
		Groups []struct{ Rules []alert }
	}
	err = p.get(ctx, "/api/v1/rules", &data)
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	return all, err
}

// await returns the names of those that fire, once all that are wanted do or it has taken too long.
func (p *prometheus) await(ctx context.Context, wanted []string, patience time.Duration) (firing map[string]alert, err error) {
	for end := time.Now().Add(patience); ; paired.Sleep(200 * time.Millisecond) {
		all, err := p.rules(ctx)
		if err != nil {
			return nil, err
		}
		firing = map[string]alert{}
		for _, a := range all {
			if a.State == "firing" {
				firing[a.Name] = a
			}
		}
		missing := 0
		for _, name := range wanted {
			if _, ok := firing[name]; !ok {
				missing++
			}
		}
		if missing == 0 || time.Now().After(end) {
			return firing, nil
		}
	}
}
