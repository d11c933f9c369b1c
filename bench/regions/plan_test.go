package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

func newTestPlan(t *testing.T, seed uint64) *plan {
	t.Helper()
	p, err := newPlan(seed, "", 30*time.Second, true)
	testenv.NoError(t, err)
	return p
}

func TestSeedDeterminesPlan(t *testing.T) {
	a, b := newTestPlan(t, 7), newTestPlan(t, 7)
	if a.String() != b.String() || !reflect.DeepEqual(a.arrivals(), b.arrivals()) {
		t.Error("the same seed has another plan")
	}
	other := *a
	other.seed = 8
	if reflect.DeepEqual(a.arrivals(), other.arrivals()) {
		t.Error("another seed has the same load")
	}
}

// TestLoad compares the number of requests with what the plan says, by phase, region and rule.
func TestLoad(t *testing.T) {
	for seed := range uint64(5) {
		p := newTestPlan(t, seed)
		units, regions, total := map[string]float64{}, map[string][]float64{}, 0
		for _, a := range p.arrivals() {
			phase, _ := p.phaseAt(a.at)
			if regions[phase.name] == nil {
				regions[phase.name] = make([]float64, len(names))
			}
			regions[phase.name][a.region]++
			if a.subject == busy && phase.factor == 0 {
				units[a.rule] += float64(a.cost)
			}
			total++
		}
		if perSecond := float64(total) / p.length.Seconds(); perSecond > 600 {
			t.Errorf("seed %d: %.0f requests per second are too many for the machine", seed, perSecond)
		}
		var calm time.Duration
		for _, phase := range p.phases {
			if phase.factor == 0 {
				calm += phase.length
			}
		}
		for _, r := range rules() {
			want := r.rate() * p.demand[r.ID] * calm.Seconds()
			if got := units[r.ID]; got < 0.8*want || got > 1.2*want {
				t.Errorf("seed %d: %s has %.0f units, want about %.0f", seed, r.ID, got, want)
			}
		}
		for i, n := range regions["all in one region"] {
			if weight := p.phases[1].weights(0)[i]; (n > 0) != (weight > 0) {
				t.Errorf("seed %d: %s has %.0f requests and the weight %g", seed, names[i], n, weight)
			}
		}
	}
}

func TestStores(t *testing.T) {
	kinds := map[string]bool{}
	for seed := range uint64(longSeeds) {
		for _, kind := range newTestPlan(t, seed+1).stores {
			kinds[kind] = true
		}
	}
	if len(kinds) != 4 {
		t.Errorf("the seeds have the stores %v, want all kinds", kinds)
	}
	for _, c := range []struct{ kinds, want string }{
		{"cluster", ""},
		{"redis,valkey,sentinel", ""},
		{"redis,valkey", "write one kind, or 3 kinds"},
		{"memory", "must be redis, valkey, sentinel or cluster"},
	} {
		_, err := newPlan(1, c.kinds, time.Second, true)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("-store %s: %v, want %q", c.kinds, err, c.want)
		}
	}
}
