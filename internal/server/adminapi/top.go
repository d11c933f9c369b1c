package adminapi

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/server/denials"
	"github.com/headgate/headgate/internal/server/offenders"
)

// UsualWindow is how far back one looks for who is refused most who does not say.
const UsualWindow = 5 * time.Minute

// Seen is what all nodes have seen lately: this one asks the others.
type Seen interface {
	Top(ctx context.Context, q offenders.Query) (offenders.Answer, Heard, error)
	Denials(ctx context.Context, q denials.Query) (denials.Answer, Heard, error)
}

// Heard is which nodes have answered.
type Heard struct {
	// Nodes is how many there are believed to be.
	Nodes    int `json:"nodes"`
	Answered int `json:"nodesAnswered"`
	// Problem is why some are missing; "" if none is.
	Problem string `json:"problem,omitempty"`
	// ShowSubjects is what the config says: hash or clear.
	ShowSubjects string `json:"showSubjects"`
}

func nobodyLooks() *problem {
	return newProblem(http.StatusNotImplemented, "this server does not watch its decisions: ask one that headgate serve runs")
}

// misspelt is an error if there is no such rule. One that was removed may have refused somebody before.
func (a *api) misspelt(rule string) error {
	if _, ok := a.limiter.Rules().Rule(rule); !ok && rule != "" {
		return notInForce(rule)
	}
	return nil
}

// listTop asks all nodes who is refused most, and who is nearest to a limit.
func (a *api) listTop(w http.ResponseWriter, r *http.Request, _ Caller) error {
	if a.seen == nil {
		return nobodyLooks()
	}
	given := r.URL.Query()
	if err := onlyKnown(given, "rule", "window", "limit"); err != nil {
		return err
	}
	window, err := readNumber(given, "window", int(UsualWindow.Seconds()), 60, 60*offenders.KeptMinutes)
	if err != nil {
		return err
	}
	most, err := readNumber(given, "limit", offenders.UsualRows, 1, offenders.MostRows)
	if err != nil {
		return err
	}
	found, heard, err := a.seen.Top(r.Context(), offenders.Query{Rule: given.Get("rule"), WindowSeconds: window, Most: most})
	if err == nil && len(found.Limited)+len(found.Near) == 0 {
		err = a.misspelt(given.Get("rule"))
	}
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, struct {
		Heard
		At            time.Time           `json:"at"`
		WindowSeconds int                 `json:"windowSeconds"`
		Incomplete    bool                `json:"incomplete"`
		Refused       []offenders.Limited `json:"refused"`
		Near          []offenders.Near    `json:"near"`
	}{
		heard, time.Now().UTC().Truncate(time.Second), window, found.Incomplete,
		append([]offenders.Limited{}, found.Limited...), append([]offenders.Near{}, found.Near...),
	})
}
