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

// serveOptions holds the flags of serve.
type serveOptions struct {
	config, logLevel string
	dev              bool
}

func newServe(p *program) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve --config FILE | --dev",
		Short: "Run the server: check API, forward auth, health and metrics",
		Long: `Run the server until it receives SIGTERM or SIGINT. It then finishes requests in flight and exits within 12 seconds; a
second signal kills it immediately. Logs go to standard error, as text on a terminal and as JSON otherwise.

With --dev, the server keeps counters in memory and listens on the loopback interface only, without TLS and tokens.
--dev without --config uses one example rule.

Exit codes:
  0  stopped by a signal
  1  the config or the rules have problems
  2  the server failed to start or stopped with an error`,
		Example: "  headgate serve --dev\n  headgate serve --config /etc/headgate/config.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level := slices.Index(logLevels, o.logLevel)
			switch {
			case level < 0:
				return usage(cmd, fmt.Errorf("--log-level %s: must be one of %s", o.logLevel, strings.Join(logLevels, ", ")))
			case o.config == "" && !o.dev:
				return usage(cmd, errors.New("no config given: use --config FILE, or --dev to try the server without one"))
			}
			return p.serve(cmd.Context(), &o, newLog(p.log, slog.Level(level*4)+slog.LevelDebug))
		},
	}
	cmd.Flags().StringVar(&o.config, "config", "", "`FILE` with the server config")
	cmd.Flags().BoolVar(&o.dev, "dev", false, "development mode: counters in memory, loopback only, no TLS or tokens")
	cmd.Flags().StringVar(&o.logLevel, "log-level", "info", "log `LEVEL`: "+strings.Join(logLevels, ", "))
	return cmd
}

// logLevels follow the order of package slog, in which adjacent levels differ by 4.
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
	run := server.Options{Version: thisVersion().Headgate, Log: log}
	if o.dev {
		c, run.Dev = devConfig(c), true
		run.Up = func(addresses map[string]string) error { return p.finish(newDevReport(addresses, c), nil) }
	}
	err := server.Run(ctx, c, run)
	if bad, ok := errors.AsType[*server.RulesError](err); ok {
		r := validateReport{Problems: bad.Problems, Warnings: []string{}}
		return p.finish(&r, &exitError{1, "headgate: " + bad.Advice + "\n"})
	}
	return err
}

// devConfig copies the settings that --dev keeps: rules, identity, ports and tracing. The others get their defaults.
func devConfig(c *config.Config) *config.Config {
	dev := config.Default()
	dev.Store = config.StoreMemory
	dev.Rules, dev.Identity, dev.Mode, dev.Headers = c.Rules, c.Identity, c.Mode, c.Headers
	dev.ShowSubjects, dev.Tracing = config.ShowClear, c.Tracing // only the user of this machine can connect
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

// devReport lists the listeners and commands to try them.
type devReport struct {
	// Addresses are the addresses of the listeners, by listener name.
	Addresses map[string]string `json:"addresses"`
	Rules     []string          `json:"rules"`
}

func newDevReport(addresses map[string]string, c *config.Config) *devReport {
	return &devReport{addresses, append([]string{}, c.Rules...)}
}

func (r *devReport) text() string {
	rules := "one example, 5 requests per minute per IP address"
	if len(r.Rules) > 0 {
		rules = strings.Join(r.Rules, ", ")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Headgate is running in development mode: loopback only, counters in memory.\nRules: %s.\n\n", rules)
	for _, row := range [][2]string{
		{"http", "check API (JSON), forward auth"},
		{"grpc", "check API (gRPC)"},
		{"ops", "/healthz, /readyz, /metrics"},
		{"admin", "explain, top, denials, profiles"},
	} {
		fmt.Fprintf(&b, "  %-6s %-16s %s\n", row[0], cmp.Or(r.Addresses[row[0]], "off"), row[1])
	}
	if http := r.Addresses["http"]; http != "" {
		fmt.Fprintf(&b, `
Act as a proxy with forward auth, until a request is denied (429):
  for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%%{http_code}\n' http://%[1]s/v1/authorize; done
Act as a service that checks a request of its client:
  curl -s http://%[1]s/v1/check --json '{"attributes": {"ip": "192.0.2.1", "method": "GET", "path": "/"}}'

`, http)
	}
	return b.String()
}
