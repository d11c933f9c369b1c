package adminapi

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/internal/server/offenders"
)

// DefaultWindow is how far back top looks if the call has no window.
const DefaultWindow = 5 * time.Minute

// Coverage is how many nodes have responded, and how they show subjects.
type Coverage struct {
	fanout.Coverage
	// ShowSubjects is the setting of the config: hash or clear.
	ShowSubjects string `json:"showSubjects"`
}

// Top has the subjects that were denied most often in a recent window, and those nearest to a limit.
type Top struct {
	Coverage
	At            time.Time           `json:"at"`
	WindowSeconds int                 `json:"windowSeconds"`
	Incomplete    bool                `json:"incomplete"`
	Denied        []offenders.Limited `json:"denied"`
	Near          []offenders.Near    `json:"near"`
}

// notObserved returns the problem of a server without Top and Denials.
func notObserved() *problem {
	return newProblem(http.StatusNotImplemented, "this server does not observe its decisions: use a server started with headgate serve")
}

// checkInForce returns an error if a rule is not in force, as when its name is misspelt, or charges the counters of another rule. Use it
// only if there are no results, since a rule that was removed may have denied requests before.
func (a *api) checkInForce(rule string) error {
	switch found, ok := a.limiter.Rules().Rule(rule); {
	case !ok && rule != "":
		return notInForce(rule)
	case found.Counter != "":
		return withoutCounters(rule)
	}
	return nil
}

// listTop lists the subjects of all nodes that are denied most often, and those nearest to a limit.
func (a *api) listTop(c *call) (any, error) {
	if a.Top == nil {
		return nil, notObserved()
	}
	given := c.URL.Query()
	if err := rejectUnknown(given, "rule", "window", "limit"); err != nil {
		return nil, err
	}
	window, err := readNumber(given, "window", int(DefaultWindow.Seconds()), 60, 60*offenders.KeptMinutes)
	if err != nil {
		return nil, err
	}
	limit, err := readNumber(given, "limit", offenders.DefaultRows, 1, offenders.MaxRows)
	if err != nil {
		return nil, err
	}
	found, coverage, err := a.Top(c.Context(), offenders.Query{Rule: given.Get("rule"), WindowSeconds: window, Limit: limit})
	if err == nil && len(found.Limited)+len(found.Near) == 0 {
		err = a.checkInForce(given.Get("rule"))
	}
	if err != nil {
		return nil, err
	}
	return Top{
		Coverage{coverage, a.ShowSubjects},
		time.Now().UTC().Truncate(time.Second), window, found.Incomplete,
		append([]offenders.Limited{}, found.Limited...), append([]offenders.Near{}, found.Near...),
	}, nil
}
