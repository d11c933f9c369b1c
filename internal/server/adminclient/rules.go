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

// rulePath is where the API has a rule.
func rulePath(rule string) string { return adminapi.RulesPath + "/" + url.PathEscape(rule) }

// Rule returns a rule by its name or id.
func (c *Client) Rule(ctx context.Context, name string) (headgate.Rule, error) {
	stored, err := ask[adminapi.Rule](ctx, c, http.MethodGet, rulePath(name), nil)
	if err != nil {
		return headgate.Rule{}, err
	}
	return c.ParseRule("rule "+name, stored.Document)
}

// Rules returns all rules, without those that are disabled if enabled is true.
func (c *Client) Rules(ctx context.Context, enabled bool) ([]adminapi.Rule, error) {
	filter := url.Values{}
	if enabled {
		filter.Set("enabled", "true")
	}
	all, _, err := list[adminapi.Rule](ctx, c, adminapi.RulesPath, "rules", filter, math.MaxInt)
	return all, err
}

// ParseRule reads a rule of the server; what says which one.
func (c *Client) ParseRule(what string, document json.RawMessage) (headgate.Rule, error) {
	rule, err := ruledoc.ParseRule(c.Server, document)
	if err != nil {
		err = fmt.Errorf("this headgate does not understand %s of %s: take the version of the server\n%w", what, c.Server, err)
	}
	return rule, err
}

// Versions returns the newest versions of the rules, at most so many, and whether there are more.
func (c *Client) Versions(ctx context.Context, most int) (all []adminapi.Version, more bool, err error) {
	return list[adminapi.Version](ctx, c, adminapi.VersionsPath, "versions", url.Values{}, most)
}

// CurrentVersion returns the number of the newest version of the rules.
func (c *Client) CurrentVersion(ctx context.Context) (int64, error) {
	newest, _, err := c.Versions(ctx, 1)
	if err == nil && len(newest) == 0 {
		err = fmt.Errorf("%s has no rules yet: headgate rules apply makes the first version", c.Server)
	}
	if err != nil {
		return 0, err
	}
	return newest[0].Number, nil
}

// RulesAt returns the mode and the rules of a version.
func (c *Client) RulesAt(ctx context.Context, version int64) (mode headgate.Mode, rules []adminapi.Rule, err error) {
	there, err := ask[adminapi.RulesAt](ctx, c, http.MethodGet, fmt.Sprintf("%s/%d", adminapi.VersionsPath, version), nil)
	if err != nil {
		return mode, nil, err
	}
	for mode.String() != there.Mode {
		if mode++; mode > headgate.Off {
			return mode, nil, c.stranger()
		}
	}
	return mode, there.Rules, nil
}

// Diff returns what differs between two versions of the rules.
func (c *Client) Diff(ctx context.Context, from, to int64) (*rulediff.Report, error) {
	r, err := ask[rulediff.Report](ctx, c, http.MethodGet, fmt.Sprintf("%s/%d/diff/%d", adminapi.VersionsPath, from, to), nil)
	return &r, err
}

// Publish makes a version of the rules, unless it is a dry run.
func (c *Client) Publish(ctx context.Context, change *adminapi.RulesChange) (p adminapi.Published, err error) {
	p, err = ask[adminapi.Published](ctx, c, http.MethodPost, adminapi.VersionsPath, change)
	if err == nil && change.DryRun && p.Changes == nil {
		err = c.stranger()
	}
	return p, err
}

// Rollback makes the rules what they were in a version.
func (c *Client) Rollback(ctx context.Context, version int64, comment string) (adminapi.Published, error) {
	why := struct {
		Comment string `json:"comment,omitzero"`
	}{comment}
	return ask[adminapi.Published](ctx, c, http.MethodPost, fmt.Sprintf("%s/%d/rollback", adminapi.VersionsPath, version), why)
}

// DeniedWith reports whether a server has denied with this status.
func DeniedWith(err error, status int) bool {
	denied, ok := errors.AsType[*DenialError](err)
	return ok && denied.Status == status
}

// Audit returns the newest changes of a rule and what belongs to it, at most so many, and whether there are more.
func (c *Client) Audit(ctx context.Context, rule string, most int) (all []adminapi.AuditEntry, more bool, err error) {
	return list[adminapi.AuditEntry](ctx, c, adminapi.AuditPath, "entries", url.Values{"rule": {rule}}, most)
}
