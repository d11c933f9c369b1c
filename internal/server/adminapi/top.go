package adminapi

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/server/fanout"
	"github.com/headgate/headgate/internal/server/offenders"
)

// UsualWindow is how far back one looks for who is denied most who does not say.
const UsualWindow = 5 * time.Minute

// Coverage says which nodes have answered, and how they show subjects.
type Coverage struct {
	fanout.Coverage
	// ShowSubjects is what the config says: hash or clear.
	ShowSubjects string `json:"showSubjects"`
}

// Top is who was denied most lately, and who is nearest to a limit.
type Top struct {
	Coverage
	At            time.Time           `json:"at"`
	WindowSeconds int                 `json:"windowSeconds"`
	Incomplete    bool                `json:"incomplete"`
	Denied        []offenders.Limited `json:"denied"`
	Near          []offenders.Near    `json:"near"`
}

func nobodyLooks() *problem {
	return newProblem(http.StatusNotImplemented, "this server does not watch its decisions: ask one that headgate serve runs")
}

// misspelt is an error if there is no such rule. One that was removed may have denied somebody before.
func (a *api) misspelt(rule string) error {
	if _, ok := a.limiter.Rules().Rule(rule); !ok && rule != "" {
		return notInForce(rule)
	}
	return nil
}

// listTop asks all nodes who is denied most, and who is nearest to a limit.
func (a *api) listTop(c *call) (any, error) {
	if a.Top == nil {
		return nil, nobodyLooks()
	}
	given := c.URL.Query()
	if err := onlyKnown(given, "rule", "window", "limit"); err != nil {
		return nil, err
	}
	window, err := readNumber(given, "window", int(UsualWindow.Seconds()), 60, 60*offenders.KeptMinutes)
	if err != nil {
		return nil, err
	}
	most, err := readNumber(given, "limit", offenders.UsualRows, 1, offenders.MostRows)
	if err != nil {
		return nil, err
	}
	found, coverage, err := a.Top(c.Context(), offenders.Query{Rule: given.Get("rule"), WindowSeconds: window, Most: most})
	if err == nil && len(found.Limited)+len(found.Near) == 0 {
		err = a.misspelt(given.Get("rule"))
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
