package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
	"github.com/headgate/headgate/ruledoc"
)

// RulesError is returned if the server has no valid rules to start with.
type RulesError struct {
	Problems ruledoc.Errors
	// Advice is the remedy.
	Advice string
}

func (e *RulesError) Error() string { return e.Problems.Error() }

// watchRules applies the rules now and whenever they change, until ctx ends; wait returns after that. If the config names no
// rules, an example rule is used.
func (s *server) watchRules(ctx context.Context) (wait func(), err error) {
	switch s.config.Mode {
	case headgate.Shadow:
		s.Log.Warn("mode is shadow: this server denies no requests")
	case headgate.Off:
		s.Log.Warn("mode is off: this server applies no rules")
	}
	if !s.config.AllowNoRules {
		s.health.countRules = func() int { return len(s.limiter.Rules().Rules()) }
		s.health.remedy = "add rules to " + strings.Join(s.config.Rules, ", ") + ", or set allow_no_rules: true in the config"
		if s.config.Postgres.Address != "" {
			s.health.remedy = "publish rules with headgate rules apply FILE, or set allow_no_rules: true in the config"
		}
	}
	report := func(e ruledoc.Event) {
		s.metrics.Rules(e)
		s.health.rules(ctx, e)
		s.warnOfRegions(ctx)
	}
	if s.config.Postgres.Address != "" && !s.Dev {
		return s.followRules(ctx, report)
	}
	if len(s.config.Rules) == 0 {
		rules, err := headgate.Compile(headgate.Rule{ID: "example", By: []string{"ip"}, Limit: headgate.PerMinute(5)})
		if err != nil {
			return nil, err
		}
		s.limiter.SetRules(rules)
		report(ruledoc.Event{Kind: ruledoc.Applied, Version: rules.Version()})
		return func() {}, nil
	}
	watcher, err := ruledoc.Watch(ctx, ruledoc.WatchOptions{
		Paths:        s.config.Rules,
		LastGoodFile: s.config.LastGoodFile,
		Apply: func(d *ruledoc.Document) error {
			d.Rules = d.Rules.WithMode(max(d.Mode, s.config.Mode))
			return d.Apply(s.limiter)
		},
		Report: report,
	})
	if err != nil {
		return nil, s.noRules(err)
	}
	return watcher.Wait, nil
}

// followRules applies the rules in PostgreSQL.
func (s *server) followRules(ctx context.Context, report func(ruledoc.Event)) (wait func(), err error) {
	if s.db, err = OpenPostgres(s.config); err != nil { //nolint:contextcheck // it does not connect
		return nil, err
	}
	follower, err := s.db.Follow(ctx, pgrules.FollowOptions{
		Limiter: s.limiter, Mode: s.config.Mode, LastGoodFile: s.config.LastGoodFile, Node: s.nodeName(), Report: report, Log: s.Log,
	})
	if err != nil {
		return nil, err
	}
	s.metrics.RulesChecked(follower.Checked)
	return follower.Wait, nil
}

// noRules returns the error of a server without rules to start with, and the remedy. LastGoodFile, if set, had no valid rules
// either.
func (s *server) noRules(err error) error {
	advice := "no rules to start with: correct the files"
	if s.config.LastGoodFile == "" {
		advice += "; with last_good_file set, the server could start with the last valid rules"
		if reason := errors.Unwrap(err); reason != nil {
			err = reason
		}
	}
	if problems, ok := errors.AsType[ruledoc.Errors](err); ok {
		return &RulesError{problems, advice}
	}
	return fmt.Errorf("%s: %w", advice, err)
}
