package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/tracing"
)

// serveOptions are the flags.
type serveOptions struct {
	config, logLevel string
	dev              bool
}

func newServe(p *program) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve --config FILE | --dev",
		Short: "Run the server: check API, forward-auth, health and metrics",
		Long: `Run the server until it gets SIGTERM or SIGINT. It then answers what it was asked and stops within 12 seconds; a
second signal ends it at once. Logs go to standard error: JSON, or text if that is a terminal.

With --dev it counts in memory and listens on this machine only, without TLS and tokens. Without --config it then has
one rule as an example.

Exit code: 0 it was stopped; 1 there are problems in the config or the rules; 2 it could not start, or broke.`,
		Example: "  headgate serve --dev\n  headgate serve --config /etc/headgate/config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slices.Index(logLevels, o.logLevel)
			switch {
			case level < 0:
				return usage(cmd, fmt.Errorf("--log-level %s: write one of %s", o.logLevel, strings.Join(logLevels, ", ")))
			case o.config == "" && !o.dev:
				return usage(cmd, errors.New("say where the config is, --config FILE, or try it without one: --dev"))
			}
			return p.serve(cmd.Context(), &o, newLog(p.log, slog.Level(level*4)+slog.LevelDebug))
		},
	}
	cmd.Flags().StringVar(&o.config, "config", "", "`FILE` with the config")
	cmd.Flags().BoolVar(&o.dev, "dev", false, "try it: no Redis, nothing but this machine")
	cmd.Flags().StringVar(&o.logLevel, "log-level", "info", "`LEVEL` of the log: "+strings.Join(logLevels, ", "))
	return cmd
}

// logLevels are in the order of package slog, where neighbours differ by 4.
var logLevels = []string{"debug", "info", "warn", "error"}

func newLog(out io.Writer, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return slog.New(tracing.LogHandler(slog.NewTextHandler(out, options)))
		}
	}
	return slog.New(tracing.LogHandler(slog.NewJSONHandler(out, options)))
}

func (p *program) serve(ctx context.Context, o *serveOptions, log *slog.Logger) error {
	c := config.Default()
	if o.config != "" {
		var err error
		if c, err = p.loadConfig(o.config); err != nil {
			return err
		}
	}
	run := server.Options{Version: programVersion(), Log: log}
	if o.dev {
		c, run.Dev = devConfig(c), true
		run.Up = func(addresses map[string]string) error { return p.end(newDevReport(addresses, c), nil) }
	}
	err := server.Run(ctx, c, run)
	if bad, ok := errors.AsType[*server.RulesError](err); ok {
		r := validateReport{Problems: bad.Problems, Warnings: []string{}}
		return p.end(&r, &exitError{1, "headgate: " + bad.Advice + "\n"})
	}
	return err
}

// devConfig keeps of a config what can be tried on one machine: rules, identity, ports and traces.
func devConfig(c *config.Config) *config.Config {
	dev := config.Default()
	dev.Rules, dev.Identity, dev.Mode, dev.Headers = c.Rules, c.Identity, c.Mode, c.Headers
	dev.ShowSubjects, dev.Tracing = config.ShowClear, c.Tracing // nobody but this machine's user is there
	dev.AllowNoRules = c.AllowNoRules
	dev.Listen = c.Listen
	dev.Listen.TLS = config.ListenTLS{}
	for _, address := range []*string{&dev.Listen.HTTP, &dev.Listen.GRPC, &dev.Listen.Ops, &dev.Listen.Admin} {
		if _, port, err := net.SplitHostPort(*address); err == nil {
			*address = net.JoinHostPort("127.0.0.1", port)
		}
	}
	if dev.Identity.TrustedHops == 0 {
		dev.Identity.TrustedProxies = append(slices.Clip(dev.Identity.TrustedProxies),
			netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
	}
	return dev
}

// devReport says what is up and how to try it.
type devReport struct {
	// Addresses are of the listeners, by name.
	Addresses map[string]string `json:"addresses"`
	Rules     []string          `json:"rules"`
}

func newDevReport(addresses map[string]string, c *config.Config) *devReport {
	return &devReport{addresses, append([]string{}, c.Rules...)}
}

func (r *devReport) text() string {
	rules := "one example: 5 requests a minute for each address"
	if len(r.Rules) > 0 {
		rules = strings.Join(r.Rules, ", ")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Headgate is up, for this machine only. Counters are in memory; rules: %s.\n\n", rules)
	for _, row := range [][2]string{
		{"http", "check API as JSON, forward-auth"},
		{"grpc", "check API"},
		{"ops", "/healthz, /readyz, /metrics"},
		{"admin", "explain, top, denials, profiles"},
	} {
		fmt.Fprintf(&b, "  %-6s %-16s %s\n", row[0], cmp.Or(r.Addresses[row[0]], "off"), row[1])
	}
	if http := r.Addresses["http"]; http != "" {
		fmt.Fprintf(&b, `
Be a proxy that asks until it is told 429:
  for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%%{http_code}\n' http://%[1]s/v1/authorize; done
Be a service that asks for one of its callers:
  curl -s http://%[1]s/v1/check --json '{"attributes": {"ip": "192.0.2.1", "method": "GET", "path": "/"}}'

`, http)
	}
	return b.String()
}
