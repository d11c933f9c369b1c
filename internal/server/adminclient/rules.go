package adminclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/rulediff"
	"github.com/headgate/headgate/ruledoc"
)

// rulePath returns the path of a rule.
func rulePath(rule string) string { return adminapi.RulesPath + "/" + url.PathEscape(rule) }

// Rule returns the rule with this name or ID.
func (c *Client) Rule(ctx context.Context, name string) (headgate.Rule, error) {
	stored, err := get[adminapi.Rule](ctx, c, http.MethodGet, rulePath(name), nil)
	if err != nil {
		return headgate.Rule{}, err
	}
	return c.ParseRule("rule "+name, stored.Document)
}

// Rules returns all rules, or only enabled rules if enabled is true.
func (c *Client) Rules(ctx context.Context, enabled bool) ([]adminapi.Rule, error) {
	filter := url.Values{}
	if enabled {
		filter.Set("enabled", "true")
	}
	all, _, err := list[adminapi.Rule](ctx, c, adminapi.RulesPath, "rules", filter, math.MaxInt)
	return all, err
}

// ParseRule parses a rule that the server returned. The error names it by what.
func (c *Client) ParseRule(what string, document json.RawMessage) (headgate.Rule, error) {
	rule, err := ruledoc.ParseRule(c.Server, document)
	if err != nil {
		err = fmt.Errorf("%s: %s: not supported by this headgate: install the server's version\n%w", c.Server, what, err)
	}
	return rule, err
}

// Versions returns up to limit versions of the rules, newest first, and reports whether stored are more.
func (c *Client) Versions(ctx context.Context, limit int) (all []adminapi.Version, more bool, err error) {
	return list[adminapi.Version](ctx, c, adminapi.VersionsPath, "versions", url.Values{}, limit)
}

// CurrentVersion returns the number of the newest version of the rules.
func (c *Client) CurrentVersion(ctx context.Context) (int64, error) {
	newest, _, err := c.Versions(ctx, 1)
	if err == nil && len(newest) == 0 {
		err = fmt.Errorf("%s: no rules yet: headgate rules apply makes the first version", c.Server)
	}
	if err != nil {
		return 0, err
	}
	return newest[0].Number, nil
}

// RulesAt returns the mode and the rules of a version.
func (c *Client) RulesAt(ctx context.Context, version int64) (mode headgate.Mode, rules []adminapi.Rule, err error) {
	stored, err := get[adminapi.RulesAt](ctx, c, http.MethodGet, fmt.Sprintf("%s/%d", adminapi.VersionsPath, version), nil)
	if err != nil {
		return mode, nil, err
	}
	for mode.String() != stored.Mode {
		if mode++; mode > headgate.Off {
			return mode, nil, c.notAdminAPI()
		}
	}
	return mode, stored.Rules, nil
}

// Diff returns the differences between two versions of the rules.
func (c *Client) Diff(ctx context.Context, from, to int64) (*rulediff.Report, error) {
	r, err := get[rulediff.Report](ctx, c, http.MethodGet, fmt.Sprintf("%s/%d/diff/%d", adminapi.VersionsPath, from, to), nil)
	return &r, err
}

// Publish makes a new version of the rules, unless it is a dry run.
func (c *Client) Publish(ctx context.Context, change *adminapi.RulesChange) (p adminapi.Published, err error) {
	p, err = get[adminapi.Published](ctx, c, http.MethodPost, adminapi.VersionsPath, change)
	if err == nil && change.DryRun && p.Changes == nil {
		err = c.notAdminAPI()
	}
	return p, err
}

// Rollback makes a new version with the rules of an earlier version.
func (c *Client) Rollback(ctx context.Context, version int64, comment string) (adminapi.Published, error) {
	body := struct {
		Comment string `json:"comment,omitzero"`
	}{comment}
	return get[adminapi.Published](ctx, c, http.MethodPost, fmt.Sprintf("%s/%d/rollback", adminapi.VersionsPath, version), body)
}

// HasStatus reports whether err is from a call that the server rejected with this status.
func HasStatus(err error, status int) bool {
	rejected, ok := errors.AsType[*StatusError](err)
	return ok && rejected.Status == status
}

// Audit returns up to limit changes of a rule, its overrides and its exemptions, newest first, and reports whether there are more.
func (c *Client) Audit(ctx context.Context, rule string, limit int) (all []adminapi.AuditEntry, more bool, err error) {
	return list[adminapi.AuditEntry](ctx, c, adminapi.AuditPath, "entries", url.Values{"rule": {rule}}, limit)
}
