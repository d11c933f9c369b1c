package adminapi

import (
	"net/url"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// usualDays are shown if nothing else is asked for.
const usualDays = 30

// listUsage is what metered rules have counted. A tenant sees what is counted for it as a whole, or for a subject of its own.
func (a *api) listUsage(c *call) (any, error) {
	id := func(u *pgrules.Usage) int64 { return u.ID }
	return list(c, "usage", id, []string{"rule", "subject", "from", "to"}, func(q url.Values, page pgrules.Page) ([]pgrules.Usage, error) {
		filter, err := readUsageFilter(q, c.by)
		if err != nil {
			return nil, err
		}
		return a.DB.Usage(c.Context(), filter, page)
	})
}

func readUsageFilter(q url.Values, by Caller) (filter pgrules.UsageFilter, err error) {
	today := time.Now().UTC()
	filter = pgrules.UsageFilter{
		First: today.AddDate(0, 0, 1-usualDays).Format(time.DateOnly), Last: today.Format(time.DateOnly), Rule: q.Get("rule"),
	}
	for name, into := range map[string]*string{"from": &filter.First, "to": &filter.Last} {
		if text := q.Get(name); text != "" {
			if _, err := time.Parse(time.DateOnly, text); err != nil {
				return filter, badRequest("%s is %q: send a day, 2026-03-06", name, text)
			}
			*into = text
		}
	}
	if filter.Subject, err = readPairs(q, "subject"); err != nil || by.Tenant == "" {
		return filter, err
	}
	if filter.Subject == nil {
		filter.Subject = headgate.Attributes{"tenant": by.Tenant}
	}
	if filter.Subject["tenant"] != by.Tenant {
		return filter, notFound("the subject is not of tenant %s: send subject=tenant=%s, and what else it has", by.Tenant, by.Tenant)
	}
	return filter, nil
}
