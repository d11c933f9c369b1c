package adminapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/region"
)

// WeightsPath is the path of the weights of regions.
const WeightsPath = RegionsPath + "/weights"

// Weights are the weights of regions, as a region.Weights has them.
type Weights interface {
	Change(ctx context.Context, weights map[string]int64, dead []string) (region.WeightsState, error)
	State() region.WeightsState
}

// WeightsChange is a request to change the weights of regions.
type WeightsChange struct {
	// Weights are the new weights by region. Other regions keep theirs.
	Weights map[string]int64 `json:"weights"`
	// Dead are regions in which no server allows anything. They get the weight 0 and need not acknowledge it.
	Dead   []string `json:"dead"`
	Reason string   `json:"reason"`
}

// RegionWeights are the newest weights of the regions.
type RegionWeights struct {
	// At is the time of the store of this region.
	At time.Time `json:"at"`
	// Serial is the number of the change; 0 for the weights of the config.
	Serial  int64          `json:"serial"`
	Regions []RegionWeight `json:"regions"`
	// Since is when all regions had acknowledged the weights; null if some have not.
	Since *time.Time `json:"since"`
	// Grown is when regions with more weight than before use it, by kind of limit; empty before Since.
	Grown []WeightsGrown `json:"grown"`
}

// RegionWeight is the weight of a region.
type RegionWeight struct {
	Name         string `json:"name"`
	Weight       int64  `json:"weight"`
	ConfigWeight int64  `json:"configWeight"`
	// Acknowledged is whether the region has acknowledged the weights, and Dead whether it need not.
	Acknowledged bool `json:"acknowledged"`
	Dead         bool `json:"dead"`
}

// WeightsGrown is when the shares of a kind of limit are those of the new weights.
type WeightsGrown struct {
	Limit string    `json:"limit"`
	At    time.Time `json:"at"`
}

// growths are the limits for which the API says when they have grown.
var growths = []struct {
	name  string
	limit headgate.Limit
}{
	{"fixed window of a minute", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Window: time.Minute}},
	{"token bucket or sliding window of a minute", headgate.Limit{Algorithm: headgate.SlidingWindow, Count: 1, Window: time.Minute}},
	{"fixed window of an hour", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Window: time.Hour}},
	{"calendar month", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Calendar: headgate.Month}},
}

func regionWeights(s *region.WeightsState) RegionWeights {
	w := RegionWeights{At: s.Now, Serial: s.Serial, Regions: []RegionWeight{}, Grown: []WeightsGrown{}}
	for _, r := range s.Regions {
		w.Regions = append(w.Regions, RegionWeight{r.Name, r.Weight, r.Config, r.Acknowledged, r.Dead})
	}
	if !s.Since.IsZero() {
		w.Since = &s.Since
		for i := range growths {
			w.Grown = append(w.Grown, WeightsGrown{growths[i].name, s.Since.Add(region.Grown(&growths[i].limit))})
		}
	}
	return w
}

// readWeights returns the newest weights.
func (a *api) readWeights(c *call) (any, error) {
	if a.Weights == nil {
		return nil, noRegions()
	}
	if err := rejectUnknown(c.URL.Query()); err != nil {
		return nil, err
	}
	s := a.Weights.State()
	return regionWeights(&s), nil
}

// changeWeights changes the weights of regions.
func (a *api) changeWeights(c *call) (any, error) {
	if a.Weights == nil {
		return nil, noRegions()
	}
	change, err := read[WeightsChange](c, `{"weights": {"eu": 2, "us": 1}, "reason": "why"}`)
	switch {
	case err != nil:
		return nil, err
	case len(change.Weights)+len(change.Dead) == 0:
		return nil, unprocessable("weights: none given: send the regions whose weights change, like {\"weights\": {\"eu\": 2}}")
	}
	for _, name := range change.Dead {
		if w := change.Weights[name]; w != 0 {
			return nil, unprocessable("dead: region %q has the weight %d in weights, but a dead region has none: remove it from one of them", name, w)
		}
	}
	a.Log.InfoContext(c.Context(), "weights of regions requested", "caller", c.by.Name, "weights", change.Weights, "dead", change.Dead, "reason", change.Reason)
	s, err := a.Weights.Change(c.Context(), change.Weights, change.Dead)
	switch {
	case errors.Is(err, region.ErrWeights):
		return nil, unprocessable("%s", err)
	case errors.Is(err, region.ErrNoResponse):
		return nil, newProblem(http.StatusConflict, err.Error())
	case err != nil:
		return nil, a.storeUnavailable(err)
	}
	return regionWeights(&s), nil
}
