package adminapi

import (
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/denials"
)

const (
	// DefaultDenials is how many denials are listed if the call has no limit.
	DefaultDenials = 50
	// DefaultSince is how far back denials are listed if the call has no since.
	DefaultSince = 10 * time.Minute
	// MaxDenials is the largest limit of a call.
	MaxDenials = maxPage
)

// Denials are recent denials.
type Denials struct {
	Coverage
	Since time.Time `json:"since"`
	// From is the time of the oldest recorded denial. Earlier denials are unknown.
	From       time.Time        `json:"from"`
	Unrecorded int64            `json:"unrecorded"`
	Denials    []denials.Record `json:"denials"`
}

// listDenials lists the recent denials of all nodes.
func (a *api) listDenials(c *call) (any, error) {
	if a.Denials == nil {
		return nil, notObserved()
	}
	q, err := readDenialsQuery(c.URL.Query(), time.Now())
	if err != nil {
		return nil, err
	}
	for name := range q.Attributes {
		if !denials.Searchable(name, a.limiter.Rules()) {
			return nil, badRequest("attribute %q: not recorded: send ip, user, api_key, tenant or another attribute that a rule counts by", name)
		}
	}
	found, coverage, err := a.Denials(c.Context(), q)
	if err == nil && len(found.Records) == 0 {
		err = a.checkInForce(q.Rule)
	}
	if err != nil {
		return nil, err
	}
	return Denials{
		Coverage{coverage, a.ShowSubjects}, q.Since, found.From, found.Unrecorded, append([]denials.Record{}, found.Records...),
	}, nil
}

func readDenialsQuery(given url.Values, now time.Time) (q denials.Query, err error) {
	if err := rejectUnknown(given, "subject", "attribute", "rule", "since", "limit"); err != nil {
		return q, err
	}
	q = denials.Query{Subject: given.Get("subject"), Rule: given.Get("rule"), Since: now.Add(-DefaultSince)}
	if _, ok := headgate.ParseSubject(q.Subject); !ok && q.Subject != "" {
		return q, badRequest("subject %q: send the 22 characters that top shows, or attribute=NAME=VALUE", q.Subject)
	}
	if q.Attributes, err = readPairs(given, "attribute"); err != nil {
		return q, err
	}
	if err := check.Validate(headgate.Request{Attributes: q.Attributes}); err != nil {
		return q, badRequest("%s", err)
	}
	q.Hide()
	if text := given.Get("since"); text != "" {
		seconds, notSeconds := strconv.ParseInt(text, 10, 32)
		at, notTime := time.Parse(time.RFC3339, text)
		switch {
		case notTime == nil:
			q.Since = at
		case notSeconds != nil || seconds < 1:
			return q, badRequest("since %q: send a time such as 2026-03-06T12:00:00Z, or a number of seconds", text)
		default:
			q.Since = now.Add(-time.Duration(seconds) * time.Second)
		}
	}
	q.Since = q.Since.UTC()
	q.Limit, err = readNumber(given, "limit", DefaultDenials, 1, MaxDenials)
	return q, err
}
