package adminclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/rulediff"
	"github.com/headgate/headgate/ruledoc"
)

const (
	rulesPath    = "/v1/rate-limit/rules"
	versionsPath = "/v1/rate-limit/versions"
)

// rulePath is where the API has a rule.
func rulePath(rule string) string { return rulesPath + "/" + url.PathEscape(rule) }

// StoredRule is a rule as the server has it.
type StoredRule struct {
	ID string `json:"ruleId"`
	// Owner is the tenant that has made it; "" if none has.
	Owner    string          `json:"owner"`
	Document json.RawMessage `json:"rule"`
}

// Rule returns a rule by its name or id.
func (c *Client) Rule(ctx context.Context, name string) (headgate.Rule, error) {
	stored, err := ask[StoredRule](ctx, c, http.MethodGet, rulePath(name), nil)
	if err != nil {
		return headgate.Rule{}, err
	}
	return c.ParseRule("rule "+name, stored.Document)
}

// Rules returns all rules, without those that are disabled if enabled is true.
func (c *Client) Rules(ctx context.Context, enabled bool) ([]StoredRule, error) {
	filter := url.Values{}
	if enabled {
		filter.Set("enabled", "true")
	}
	all, _, err := list[StoredRule](ctx, c, rulesPath, "rules", filter, math.MaxInt)
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

// Version is one of the rules.
type Version struct {
	Number    int64     `json:"version"`
	Mode      string    `json:"mode"`
	Actor     string    `json:"actor"`
	Comment   string    `json:"comment"`
	CreatedAt time.Time `json:"createdAt"`
	Changed   int64     `json:"changed"`
}

// Versions returns the newest versions of the rules, at most so many, and whether there are more.
func (c *Client) Versions(ctx context.Context, most int) (all []Version, more bool, err error) {
	return list[Version](ctx, c, versionsPath, "versions", url.Values{}, most)
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
func (c *Client) RulesAt(ctx context.Context, version int64) (mode headgate.Mode, rules []StoredRule, err error) {
	var there struct {
		Mode  string
		Rules []StoredRule
	}
	if err := c.call(ctx, http.MethodGet, fmt.Sprintf("%s/%d", versionsPath, version), nil, &there); err != nil {
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
	r, err := ask[rulediff.Report](ctx, c, http.MethodGet, fmt.Sprintf("%s/%d/diff/%d", versionsPath, from, to), nil)
	return &r, err
}

// RulesChange is a change of all rules.
type RulesChange struct {
	Rules   []json.RawMessage `json:"rules"`
	Prune   bool              `json:"prune"`
	Mode    string            `json:"mode,omitzero"`
	Base    *int64            `json:"base,omitzero"`
	Comment string            `json:"comment,omitzero"`
	DryRun  bool              `json:"dryRun,omitzero"`
}

// Published is what has become of a change of rules, or would.
type Published struct {
	Version int64            `json:"version"`
	Changes *rulediff.Report `json:"changes"`
}

// Publish makes a version of the rules, unless it is a dry run.
func (c *Client) Publish(ctx context.Context, change *RulesChange) (p Published, err error) {
	p, err = ask[Published](ctx, c, http.MethodPost, versionsPath, change)
	if err == nil && change.DryRun && p.Changes == nil {
		err = c.stranger()
	}
	return p, err
}

// Rollback makes the rules what they were in a version.
func (c *Client) Rollback(ctx context.Context, version int64, comment string) (Published, error) {
	why := struct {
		Comment string `json:"comment,omitzero"`
	}{comment}
	return ask[Published](ctx, c, http.MethodPost, fmt.Sprintf("%s/%d/rollback", versionsPath, version), why)
}

// Conflict reports whether somebody else has changed what a change is based on.
func Conflict(err error) bool { return refusedWith(err, http.StatusConflict) }

func refusedWith(err error, status int) bool {
	var refused *RefusalError
	return errors.As(err, &refused) && refused.Status == status
}

// AuditEntry is a change of a rule or what belongs to it.
type AuditEntry struct {
	ID        int64           `json:"id"`
	Object    string          `json:"object"`
	Action    string          `json:"action"`
	Rule      string          `json:"rule,omitzero"`
	Old       json.RawMessage `json:"old,omitzero"`
	New       json.RawMessage `json:"new,omitzero"`
	Version   int64           `json:"version,omitzero"`
	Actor     string          `json:"actor"`
	CreatedAt time.Time       `json:"createdAt"`
}

// Audit returns the newest changes of a rule and what belongs to it, at most so many, and whether there are more.
func (c *Client) Audit(ctx context.Context, rule string, most int) (all []AuditEntry, more bool, err error) {
	return list[AuditEntry](ctx, c, "/v1/rate-limit/audit", "entries", url.Values{"rule": {rule}}, most)
}
