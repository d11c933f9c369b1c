package region

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// ErrWeights is returned for a change that is invalid, and ErrNoResponse for one that would leave units unused because regions do not
// respond, or not with their weights.
var (
	ErrWeights    = errors.New("invalid weights")
	ErrNoResponse = errors.New("the weights of other regions cannot be read")
)

// Change changes the weights of the named regions. The others keep theirs. The regions in dead get the weight 0 and need not acknowledge it:
// the caller knows that no server of them allows anything.
func (w *Weights) Change(ctx context.Context, weights map[string]int64, dead []string) (WeightsState, error) {
	for name := range weights {
		if w.shares.index(name) < 0 {
			return WeightsState{}, fmt.Errorf("%w: region %q is not one of %s", ErrWeights, name, strings.Join(w.names(), ", "))
		}
	}
	if slices.Contains(dead, w.own) {
		return WeightsState{}, fmt.Errorf("%w: region %s is the one that this server is in, which is not dead: use a server of another region", ErrWeights, w.own)
	}
	if err := w.pullAll(ctx, func(name string) bool { return slices.Contains(dead, name) || w.wasDead(name, weights) }); err != nil {
		return WeightsState{}, err
	}
	if err := w.poll(ctx); err != nil {
		return WeightsState{}, err
	}
	t, err := w.propose(weights, dead)
	if err != nil {
		return WeightsState{}, err
	}
	if err := w.poll(ctx); err != nil {
		return WeightsState{}, fmt.Errorf("it is unknown whether weights change: see the state of the weights, then try again: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.record.Tables, func(o table) bool { return o.compare(&t) == 0 }) {
		return WeightsState{}, fmt.Errorf("%w: another change was made at the same time: see the state of the weights, then try again", ErrWeights)
	}
	return w.state(), nil
}

func (w *Weights) names() (names []string) {
	for _, m := range w.shares.members {
		names = append(names, m.Name)
	}
	return names
}

// wasDead reports whether a region was declared dead, and remains without weight.
func (w *Weights) wasDead(name string, weights map[string]int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.record.newest()
	return t != nil && slices.Contains(t.Dead, name) && weights[name] == 0
}

// pullAll reads the tables of all regions, except those that skip returns true for.
func (w *Weights) pullAll(ctx context.Context, skip func(name string) bool) error {
	var mu sync.Mutex
	var problems []string
	var pulling sync.WaitGroup
	for name, peer := range w.peers {
		if skip(name) {
			continue
		}
		pulling.Go(func() {
			if err := w.pull(ctx, name, peer); err != nil {
				mu.Lock()
				defer mu.Unlock()
				problems = append(problems, fmt.Sprintf("%s (%v)", name, err))
			}
		})
	}
	pulling.Wait()
	if len(problems) == 0 {
		return nil
	}
	sort.Strings(problems)
	return fmt.Errorf("%w: %s: nothing was changed: remove the cause, then try again; only if no server of a region runs, drain it with --dead",
		ErrNoResponse, strings.Join(problems, "; "))
}

// propose adds a table to the incoming ones.
func (w *Weights) propose(weights map[string]int64, dead []string) (table, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := table{Serial: 1, ID: rand.Text()[:8], Weights: w.weights(w.record.newest())}
	if newest := w.record.newest(); newest != nil {
		t.Serial = newest.Serial + 1
		for _, name := range newest.Dead {
			if weights[name] == 0 && !slices.Contains(dead, name) {
				dead = append(slices.Clone(dead), name)
			}
		}
	}
	maps.Copy(t.Weights, weights)
	for _, name := range dead {
		if w.shares.index(name) < 0 {
			return table{}, fmt.Errorf("%w: region %q is not one of %s", ErrWeights, name, strings.Join(w.names(), ", "))
		}
		t.Weights[name] = 0
	}
	t.Dead = slices.Sorted(slices.Values(dead))
	if err := checkWeights(t.Weights, w.shares.members); err != nil {
		return table{}, fmt.Errorf("%w: %w", ErrWeights, err)
	}
	bound := maxTables
	if len(dead) > 0 {
		bound *= 2
	}
	if all := w.record.Tables; len(all) >= bound && !slices.ContainsFunc(all, func(o table) bool { return maps.Equal(o.Weights, t.Weights) }) {
		return table{}, fmt.Errorf("%w: there were %d different weights of the regions in %d days: must be at most %d: use weights that were used before",
			ErrWeights, len(all), keepTables/(24*3600*1_000_000), bound)
	}
	w.incoming.merge(&record{Tables: []table{t}}, false)
	return t, nil
}

// weights returns the weights of a table, or of the config if it is nil.
func (w *Weights) weights(t *table) map[string]int64 {
	if t != nil {
		return maps.Clone(t.Weights)
	}
	all := map[string]int64{}
	for _, m := range w.shares.members {
		all[m.Name] = m.Weight
	}
	return all
}

// WeightsState is the newest weights of the regions, as this region knows them.
type WeightsState struct {
	// Serial is the number of the change; 0 for the weights of the config.
	Serial  int64
	Regions []MemberWeight
	// Since is when all regions had acknowledged the weights, by the store of this region; the zero time if some have not.
	Since time.Time
	// Now is the time of this region's store.
	Now time.Time
}

// MemberWeight is the weight of one region.
type MemberWeight struct {
	Name string
	// Weight is its newest weight, Config the one in the config.
	Weight, Config int64
	// Acknowledged is whether it has acknowledged its weight, and Dead whether it need not.
	Acknowledged, Dead bool
	// Contact is when this server last read its weights; the zero time for this region and one that has not responded yet.
	Contact time.Time
}

// State returns the newest weights.
func (w *Weights) State() WeightsState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state()
}

func (w *Weights) state() WeightsState {
	s := WeightsState{Now: time.UnixMicro(w.at).UTC()}
	t := w.record.newest()
	weights := w.weights(t)
	if t != nil {
		s.Serial = t.Serial
		if t.Since > 0 {
			s.Since = time.UnixMicro(t.Since).UTC()
		}
	}
	for _, m := range w.shares.members {
		r := MemberWeight{Name: m.Name, Weight: weights[m.Name], Config: m.Weight, Acknowledged: t == nil || t.Acks[m.Name] > 0, Contact: w.contacts[m.Name]}
		r.Dead = t != nil && slices.Contains(t.Dead, m.Name)
		s.Regions = append(s.Regions, r)
	}
	return s
}

// Grown returns how long after Since the shares of a limit are those of the new weights.
func Grown(l *headgate.Limit) time.Duration { return time.Duration(span(l)) * time.Microsecond }
