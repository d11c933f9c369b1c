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
	// UsualDenials is how many one gets who does not say.
	UsualDenials = 50
	// UsualSince is how far back one looks who does not say.
	UsualSince = 10 * time.Minute
	// MostDenials is how many one may ask for.
	MostDenials = largestPage
)

// Denials is what was denied lately.
type Denials struct {
	Coverage
	Since time.Time `json:"since"`
	// From is when the oldest of what is remembered was: nobody knows what was before.
	From       time.Time        `json:"from"`
	Unrecorded int64            `json:"unrecorded"`
	Denials    []denials.Record `json:"denials"`
}

// listDenials asks all nodes what they have denied.
func (a *api) listDenials(c *call) (any, error) {
	if a.Denials == nil {
		return nil, nobodyLooks()
	}
	q, err := readDenialsQuery(c.URL.Query(), time.Now())
	if err != nil {
		return nil, err
	}
	for name := range q.Attributes {
		if !denials.Known(name, a.limiter.Rules()) {
			return nil, badRequest("denials are not remembered by %q: send ip, user, api_key, tenant or another attribute that a rule counts by",
				name)
		}
	}
	found, coverage, err := a.Denials(c.Context(), q)
	if err == nil && len(found.Records) == 0 {
		err = a.misspelt(q.Rule)
	}
	if err != nil {
		return nil, err
	}
	return Denials{
		Coverage{coverage, a.ShowSubjects}, q.Since, found.From, found.Unrecorded, append([]denials.Record{}, found.Records...),
	}, nil
}

func readDenialsQuery(given url.Values, now time.Time) (q denials.Query, err error) {
	if err := onlyKnown(given, "subject", "attribute", "rule", "since", "limit"); err != nil {
		return q, err
	}
	q = denials.Query{Subject: given.Get("subject"), Rule: given.Get("rule"), Since: now.Add(-UsualSince)}
	if _, ok := headgate.ParseSubject(q.Subject); !ok && q.Subject != "" {
		return q, badRequest("subject is %q: send the 22 characters that top shows, or attribute=NAME=VALUE", q.Subject)
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
			return q, badRequest("since is %q: send a time, 2026-03-06T12:00:00Z, or how many seconds ago", text)
		default:
			q.Since = now.Add(-time.Duration(seconds) * time.Second)
		}
	}
	q.Since = q.Since.UTC()
	q.Most, err = readNumber(given, "limit", UsualDenials, 1, MostDenials)
	return q, err
}
