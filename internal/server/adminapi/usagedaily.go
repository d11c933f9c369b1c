package adminapi

import (
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

// usualDays are shown if nothing else is asked for.
const usualDays = 30

// listUsage is what metered rules have counted. A tenant sees what is counted for it as a whole, or for a subject of its own.
func (a *api) listUsage(w http.ResponseWriter, r *http.Request, by Caller) error {
	page, q, err := readPage(r, "rule", "subject", "from", "to")
	if err != nil {
		return err
	}
	today := time.Now().UTC()
	filter := pgrules.UsageFilter{
		First: today.AddDate(0, 0, 1-usualDays).Format(time.DateOnly), Last: today.Format(time.DateOnly), Rule: q.Get("rule"),
	}
	for name, into := range map[string]*string{"from": &filter.First, "to": &filter.Last} {
		if text := q.Get(name); text != "" {
			if _, err := time.Parse(time.DateOnly, text); err != nil {
				return badRequest("%s is %q: send a day, 2026-03-06", name, text)
			}
			*into = text
		}
	}
	if filter.Subject, err = readPairs(q, "subject"); err != nil {
		return err
	}
	if by.Tenant != "" {
		if filter.Subject == nil {
			filter.Subject = headgate.Attributes{"tenant": by.Tenant}
		}
		if !by.owns(filter.Subject["tenant"]) || filter.Subject["tenant"] == "" {
			return notFound("the subject is not of tenant %s: send subject=tenant=%s, and what else it has", by.Tenant, by.Tenant)
		}
	}
	all, err := a.DB.Usage(r.Context(), filter, page)
	if err != nil {
		return err
	}
	return answerPage(w, page, "usage", all, func(u *pgrules.Usage) int64 { return u.ID })
}
