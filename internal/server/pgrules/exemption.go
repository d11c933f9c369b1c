package pgrules

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// Exemption excludes a subject from a rule, or from all rules if Rule, the rule's name, is "". SubjectType is api_key, user, ip_cidr
// or service_account.
type Exemption struct {
	ID           int64      `json:"exemptionId"`
	Rule         string     `json:"rule,omitempty"`
	SubjectType  string     `json:"subjectType"`
	SubjectValue string     `json:"subjectValue"`
	Reason       string     `json:"reason"`
	ExpiresAt    *time.Time `json:"expiresAt,omitempty"`
	CreatedBy    string     `json:"createdBy"`
	CreatedAt    time.Time  `json:"createdAt"`
}

// AddExemption adds an exemption, or changes the reason and the expiry of an existing one.
func (db *DB) AddExemption(ctx context.Context, who Who, x Exemption) (Exemption, error) {
	params := pgdb.AddExemptionParams{
		SubjectType: x.SubjectType, SubjectValue: x.SubjectValue, Reason: x.Reason, ExpiresAt: x.ExpiresAt, CreatedBy: who.Name,
	}
	switch {
	case !slices.Contains([]string{"api_key", "user", "ip_cidr", "service_account"}, x.SubjectType):
		return x, fmt.Errorf("%w: subjectType %q: must be api_key, user, ip_cidr or service_account", ErrRejected, x.SubjectType)
	case x.SubjectValue == "":
		return x, fmt.Errorf("%w: subjectValue: required for subjectType %s", ErrRejected, x.SubjectType)
	case checkReason(x.Reason) != nil:
		return x, checkReason(x.Reason)
	case x.SubjectType == "ip_cidr":
		network, err := parseNetwork(x.SubjectValue)
		if err != nil {
			return x, fmt.Errorf("%w: %w", ErrRejected, err)
		}
		params.SubjectValue = network.String()
	case x.SubjectType == "api_key":
		hash, err := headgate.ParseKeyHash(x.SubjectValue)
		if err != nil {
			return x, fmt.Errorf("%w: %w", ErrRejected, err)
		}
		params.SubjectValue = hash
	}
	var err error
	if params.RuleID, err = db.ruleID(ctx, x.Rule); err != nil {
		return x, err
	}
	err = db.changeExceptions(ctx, who, func(q *pgdb.Queries) (int64, error) {
		row, err := q.AddExemption(ctx, params)
		x.ID, x.SubjectValue, x.CreatedBy, x.CreatedAt = row.ID, row.SubjectValue, row.CreatedBy, row.CreatedAt
		return 1, err
	})
	return x, err
}

func parseNetwork(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil || network != network.Masked() || network.Addr().Is4In6() {
		return network, fmt.Errorf("%q: invalid network: write it like 10.0.0.0/8 or 2001:db8::/32", text)
	}
	return network, nil
}

// Exemption returns the exemption with this id.
func (db *DB) Exemption(ctx context.Context, id int64) (Exemption, error) {
	all, err := db.Exemptions(ctx, ExceptionFilter{}, Page{After: id - 1, Limit: 1})
	return only(all, err, "exemption", id, func(x *Exemption) int64 { return x.ID })
}

// Exemptions returns a page of the exemptions in force, in the order of their creation.
func (db *DB) Exemptions(ctx context.Context, filter ExceptionFilter, page Page) ([]Exemption, error) {
	rule, err := db.ruleID(ctx, filter.Rule)
	if err != nil {
		return nil, err
	}
	params := pgdb.ListExemptionsParams{After: page.After, MaxRows: page.Limit, Rule: rule, Tenant: orNull(filter.Tenant)}
	rows, err := db.query().ListExemptions(ctx, params)
	return convert(rows, func(r pgdb.ListExemptionsRow) Exemption { return Exemption(r) }), db.explain(err)
}

// RemoveExemption removes an exemption.
func (db *DB) RemoveExemption(ctx context.Context, who Who, id int64) error {
	return db.remove(ctx, who, "exemption", id, (*pgdb.Queries).RemoveExemption)
}
