package adminapi

import (
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/explain"
)

// homeOf returns the home of a limit's subject, or nil if this region counts it without homes.
func (a *api) homeOf(l *headgate.LimitDecision) *explain.Home {
	if a.Home == nil || l.Missing != "" || l.Limit.Algorithm == headgate.Concurrency { // concurrency limits of overrides have no homes
		return nil
	}
	if rule, ok := a.limiter.Rules().Rule(l.Rule); !ok || rule.Regions != headgate.HomeRegion {
		return nil
	}
	home := a.Home(l.Subject)
	if by := l.DecidedBy(); by != headgate.PathLocal && by != headgate.PathFailed {
		home.Problem = ""
	}
	return &home
}

// undecided returns the problem of a decision on a subject that failed with err. It is that of the home if it is in another region.
func (a *api) undecided(limits []headgate.LimitDecision, subject headgate.Attributes, err error) *problem {
	for i := range limits {
		if limits[i].Err == nil {
			continue
		}
		if home := a.homeOf(&limits[i]); home != nil && !home.Own {
			return newProblem(http.StatusServiceUnavailable, home.Failure(subject))
		}
	}
	return a.storeUnavailable(err)
}
