package adminapi

import (
	"net/url"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// defaultDays is how many days are listed if the call has no from.
const defaultDays = 30

// listUsage lists the usage of metered rules. A tenant can list its usage as a whole, or that of one of its subjects.
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
		First: today.AddDate(0, 0, 1-defaultDays).Format(time.DateOnly), Last: today.Format(time.DateOnly), Rule: q.Get("rule"),
	}
	for name, field := range map[string]*string{"from": &filter.First, "to": &filter.Last} {
		if text := q.Get(name); text != "" {
			if _, err := time.Parse(time.DateOnly, text); err != nil {
				return filter, badRequest("%s %q: send a day such as 2026-03-06", name, text)
			}
			*field = text
		}
	}
	if filter.Subject, err = readPairs(q, "subject"); err != nil || by.Tenant == "" {
		return filter, err
	}
	if filter.Subject == nil {
		filter.Subject = headgate.Attributes{"tenant": by.Tenant}
	}
	if filter.Subject["tenant"] != by.Tenant {
		return filter, notFound("subject: not of tenant %s: send subject=tenant=%s and its other attributes", by.Tenant, by.Tenant)
	}
	return filter, nil
}
