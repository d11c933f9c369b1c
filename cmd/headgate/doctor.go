package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/cmd/headgate/internal/doctor"
	"github.com/headgate/headgate/cmd/headgate/internal/shellwords"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// doctorReport is the JSON of "doctor".
type doctorReport struct {
	// OK is whether there are no problems. There may be warnings.
	OK       bool   `json:"ok"`
	Problems int    `json:"problems"`
	Warnings int    `json:"warnings"`
	Config   string `json:"config,omitempty"`
	// Redis is "" if the counters are in the server's memory.
	Redis    string           `json:"redis"`
	Findings []doctor.Finding `json:"findings"`
}

func newDoctor(p *program) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "doctor [--config FILE]",
		Short: "Check Redis, PostgreSQL, the config, its files and this host, with remedies",
		Long: `Check everything that a server depends on, from this host: Redis (version, permissions of the user, eviction, memory, persistence,
replicas, clock, latency), PostgreSQL, listeners, other regions, trusted proxies, permissions of files, open files, and the rules. Each
finding says what it means and what to do. Run it before the first start, after a change of Redis, and when something is
wrong.

It charges nothing and leaves nothing in Redis. Without --config, the defaults are checked.

Exit codes:
  0  no problems; there may be warnings
  1  problems found
  2  the config cannot be read`,
		Example: "  headgate doctor\n  headgate doctor --config /etc/headgate/config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			c := config.Default()
			if file != "" {
				if c, err = p.loadConfig(file); err != nil {
					return err
				}
			}
			r := examine(cmd.Context(), c, file)
			return p.finish(r, failUnless(r.OK))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "`FILE` with the server config (default: the defaults of all keys)")
	return cmd
}

// examine makes all checks. file is "" if c is the default config.
func examine(ctx context.Context, c *config.Config, file string) *doctorReport {
	r := &doctorReport{Config: file, Redis: redact.Address(c.Redis.Address)}
	add := func(findings ...doctor.Finding) { r.Findings = append(r.Findings, findings...) }
	if c.Store == config.StoreMemory {
		r.Redis = ""
		add(doctor.Finding{
			Section: doctor.SectionHost, Check: "store", Status: doctor.OK,
			Detail: "memory: limits are those of one server, and a restart starts them at zero",
		})
	} else if o, err := server.RedisOptions(&c.Redis); err != nil {
		add(doctor.Finding{Section: doctor.SectionRedis, Check: "connection", Status: doctor.Problem, Detail: err.Error(), Remedy: "run headgate doctor as the user of the server"})
	} else {
		add(doctor.CheckRedis(ctx, doctor.Redis{Options: o, TLSFiles: c.Redis.TLS, Deadline: c.Redis.Deadline, Nodes: c.Nodes})...)
	}
	byAddress := true // unknown, if the rules are in PostgreSQL
	if c.Postgres.Address != "" {
		add(doctor.CheckPostgres(ctx, c, file)...)
	} else if file != "" {
		var findings []doctor.Finding
		findings, byAddress = examineRules(c)
		add(findings...)
	}
	if file != "" {
		add(doctor.CheckListeners(c)...)
		add(doctor.CheckRegions(ctx, c, time.Now())...)
		add(doctor.CheckIdentity(c, byAddress)...)
		add(doctor.CheckFiles(c, file, time.Now())...)
	}
	add(doctor.CheckHost(c)...)
	for _, f := range r.Findings {
		switch f.Status {
		case doctor.Problem:
			r.Problems++
		case doctor.Warning:
			r.Warnings++
		}
	}
	r.OK = r.Problems == 0
	return r
}

// examineRules validates the rule files, and reports whether a rule counts by the address of clients.
func examineRules(c *config.Config) (findings []doctor.Finding, byAddress bool) {
	add := func(status doctor.Status, detail, remedy string) {
		findings = append(findings, doctor.Finding{Section: doctor.SectionRules, Check: "rules", Status: status, Detail: detail, Remedy: remedy})
	}
	validate := shellwords.Command(append([]string{"headgate", "rules", "validate"}, c.Rules...)...)
	d, warnings, err := loadWithWarnings(&c.Regions, c.Rules...)
	var problems ruledoc.Errors
	switch {
	case errors.As(err, &problems):
		add(doctor.Problem, wording.Count(len(problems), "problem")+" in the rules: a server starts only with last_good_file, and a running one keeps the rules before them", validate)
		return findings, true
	case err != nil:
		add(doctor.Problem, err.Error(), "correct rules in the config")
		return findings, true
	}
	for _, w := range warnings {
		add(doctor.Warning, w, "")
	}
	if mode := max(d.Mode, c.Mode); mode != headgate.Enforce {
		add(doctor.Warning, "mode is "+mode.String()+": no requests are denied", "mode: enforce")
	}
	if len(d.Source) == 0 && !c.AllowNoRules {
		add(doctor.Problem, "there are no rules: the server is not ready", "add rules, or allow_no_rules: true")
	}
	if len(findings) == 0 {
		add(doctor.OK, fmt.Sprintf("%s, version %s", wording.Count(len(d.Source), "rule"), d.Rules.Version()), "")
	}
	return findings, slices.ContainsFunc(d.Source, func(rule headgate.Rule) bool {
		return slices.Contains(rule.By, "ip") || slices.Contains(rule.By, "client")
	})
}

// sectionTitles has the headings of the findings, in order.
var sectionTitles = [][2]string{
	{doctor.SectionRedis, "Redis"},
	{doctor.SectionPostgres, "PostgreSQL"},
	{doctor.SectionRules, "Rules"},
	{doctor.SectionListeners, "Listeners"},
	{doctor.SectionRegions, "Regions"},
	{doctor.SectionIdentity, "Identity"},
	{doctor.SectionFiles, "Files"},
	{doctor.SectionHost, "Host"},
}

func (r *doctorReport) text() string {
	var b strings.Builder
	for _, title := range sectionTitles {
		var rows [][]string
		for _, f := range r.Findings {
			if f.Section != title[0] {
				continue
			}
			detail := f.Detail
			if len(f.Servers) > 0 {
				detail = strings.Join(f.Servers, ", ") + ": " + detail
			}
			rows = append(rows, []string{string(f.Status), f.Check, detail})
			if f.Remedy != "" && f.Status != doctor.OK {
				rows = append(rows, []string{"", "", "fix: " + f.Remedy})
			}
		}
		if len(rows) > 0 {
			heading := title[1]
			if title[0] == doctor.SectionRedis {
				heading += " " + r.Redis
			}
			b.WriteString(heading + "\n" + wording.Table("  ", rows...) + "\n")
		}
	}
	fmt.Fprintf(&b, "%s, %s\n", wording.Count(r.Problems, "problem"), wording.Count(r.Warnings, "warning"))
	return b.String()
}
