package region

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	recordVersion = 1
	// keepTables is how long a region keeps tables, in microseconds: longer than any window, and than twice the time in which all but the
	// slowest buckets refill. If there are more than keepAll, it drops those whose weights a newer one has as well. There are at most
	// maxTables, and twice as many if regions die.
	keepAll    = 32
	maxTables  = 64
	keepTables = 400 * 24 * 3600 * 1_000_000
	// ackWait is how long after the region's store has a table the region acknowledges it, in microseconds of the store. By then all its
	// servers have read the table or know that they must, and charges that were made before have been answered.
	ackWait = int64((freshFor + maxCall) / time.Microsecond)
)

// table is the weights of all regions from some time on. Tables are ordered by serial and ID, and a region accepts only a table that is
// newer than all that it has, so that it has accepted every table that all regions acknowledge before any newer one.
type table struct {
	Serial  int64            `json:"serial"`
	ID      string           `json:"id"`
	Weights map[string]int64 `json:"weights"`
	// Dead are regions whose acknowledgement is not needed, because no server of them allows anything.
	Dead []string `json:"dead,omitempty"`
	// Acks are the times of the regions' own stores, in microseconds since 1970, from which on they use no more than their shares
	// of this table. The table is in force if all regions but dead ones have acknowledged it.
	Acks map[string]int64 `json:"acks,omitempty"`

	// Kept is a time of this region's store when it had the table, and Since one when it had all acknowledgements, which is not before any
	// of them. They are this region's own, and 0 before.
	Kept  int64 `json:"kept,omitempty"`
	Since int64 `json:"since,omitempty"`
}

// compare orders tables.
func (t *table) compare(o *table) int {
	return cmp.Or(cmp.Compare(t.Serial, o.Serial), cmp.Compare(t.ID, o.ID))
}

// missing returns the regions that have not acknowledged the table and must.
func (t *table) missing() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(t.Weights)) {
		if t.Acks[name] == 0 && !slices.Contains(t.Dead, name) {
			names = append(names, name)
		}
	}
	return names
}

func (t *table) clone() table {
	c := *t
	c.Acks = maps.Clone(t.Acks)
	return c
}

// record is the tables that a region has accepted, oldest first. The weights of the config come before all of them.
type record struct {
	Version int     `json:"version"`
	Tables  []table `json:"tables"`
	// Dropped is whether there were older tables, which have no effect any more. It is this region's own.
	Dropped bool `json:"dropped,omitempty"`
}

// decodeRecord reads a record of regions with the given names.
func decodeRecord(text string, members []Member) (record, error) {
	var r record
	if text == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return record{}, fmt.Errorf("weights of regions: %w", err)
	}
	if r.Version != recordVersion {
		return record{}, fmt.Errorf("weights of regions: version %d: must be %d: upgrade this server", r.Version, recordVersion)
	}
	for i := range r.Tables {
		t := &r.Tables[i]
		if err := checkWeights(t.Weights, members); err != nil {
			return record{}, fmt.Errorf("weights of regions: serial %d: %w", t.Serial, err)
		}
		if t.Serial < 1 || i > 0 && r.Tables[i-1].compare(t) >= 0 {
			return record{}, fmt.Errorf("weights of regions: serial %d: not in order", t.Serial)
		}
	}
	return r, nil
}

// MaxWeight is the maximum weight of a region, and MaxTotalWeight the maximum sum, which headgate.Fraction supports.
const (
	MaxWeight      = 1000
	MaxTotalWeight = 10_000
)

// checkWeights returns an error unless the weights are those of all members.
func checkWeights(weights map[string]int64, members []Member) error {
	total := int64(0)
	for _, m := range members {
		weight, ok := weights[m.Name]
		if !ok {
			return fmt.Errorf("region %s has no weight: write the same regions.members in the configs of all regions", m.Name)
		}
		if weight < 0 || weight > MaxWeight {
			return fmt.Errorf("weight %d of region %s: must be 0 to %d", weight, m.Name, MaxWeight)
		}
		total += weight
	}
	if len(weights) > len(members) {
		return fmt.Errorf("weights of %d regions: there are %d: write the same regions.members in the configs of all regions", len(weights), len(members))
	}
	if total < 1 || total > MaxTotalWeight {
		return fmt.Errorf("weights of %d in total: must be 1 to %d", total, MaxTotalWeight)
	}
	return nil
}

func (r *record) encode() string {
	if len(r.Tables) == 0 {
		return ""
	}
	r.Version = recordVersion
	text, _ := json.Marshal(r) // it has no values that cannot be encoded
	return string(text)
}

// shared returns the record without what is this region's own, and its digest.
func (r *record) shared() (text, digest string) {
	s := r.clone()
	s.Dropped = false
	for i := range s.Tables {
		s.Tables[i].Kept, s.Tables[i].Since = 0, 0
	}
	text = s.encode()
	sum := sha256.Sum256([]byte(text))
	return text, hex.EncodeToString(sum[:])
}

func (r *record) clone() record {
	c := record{Version: r.Version, Dropped: r.Dropped, Tables: make([]table, len(r.Tables))}
	for i := range r.Tables {
		c.Tables[i] = r.Tables[i].clone()
	}
	return c
}

// newest returns the last table, or nil.
func (r *record) newest() *table {
	if len(r.Tables) == 0 {
		return nil
	}
	return &r.Tables[len(r.Tables)-1]
}

// merge adds what another record knows. own is whether it is of this region, too.
func (r *record) merge(o *record, own bool) {
	r.Dropped = r.Dropped || own && o.Dropped
	for i := range o.Tables {
		t := o.Tables[i].clone()
		if !own {
			t.Kept, t.Since = 0, 0
		}
		at, found := slices.BinarySearchFunc(r.Tables, &t, func(a table, b *table) int { return a.compare(b) })
		switch {
		case found:
			r.Tables[at].add(&t)
		case at == len(r.Tables), own:
			r.Tables = slices.Insert(r.Tables, at, t)
		case len(t.missing()) == 0 && (at > 0 || !r.Dropped) && !repeated(&t, r.Tables[at:]):
			// All regions acknowledged it while this one was declared dead.
			r.Tables = slices.Insert(r.Tables, at, t)
		}
	}
}

// add adds what the same table in another record says.
func (t *table) add(o *table) {
	for name, at := range o.Acks {
		if t.Acks == nil {
			t.Acks = map[string]int64{}
		}
		t.Acks[name] = max(t.Acks[name], at)
	}
	t.Kept, t.Since = max(t.Kept, o.Kept), max(t.Since, o.Since)
}

// advance records what follows from the fact that the store of region own had this record at a time.
func (r *record) advance(own string, at int64) {
	for i := range r.Tables {
		t := &r.Tables[i]
		if t.Kept == 0 {
			t.Kept = at
		}
		if t.Acks[own] == 0 && at >= t.Kept+ackWait {
			t.add(&table{Acks: map[string]int64{own: at}})
		} else if t.Since == 0 && len(t.missing()) == 0 {
			t.Since = at
			for _, ack := range t.Acks {
				t.Since = max(t.Since, ack)
			}
		}
	}
	for i := len(r.Tables) - 1; i > 0; i-- {
		if since := r.Tables[i].Since; since > 0 && since+keepTables <= at {
			r.Tables = slices.Delete(r.Tables, 0, i)
			r.Dropped = true
			break
		}
	}
	r.dropRepeated()
}

// dropRepeated drops the oldest tables whose weights a newer one has as well, if there are many. This makes no share larger: a region that
// has to respect a table also has to respect all newer ones.
func (r *record) dropRepeated() {
	for i := 0; i < len(r.Tables) && len(r.Tables) > keepAll; {
		if repeated(&r.Tables[i], r.Tables[i+1:]) {
			r.Tables = slices.Delete(r.Tables, i, i+1)
		} else {
			i++
		}
	}
}

// repeated reports whether one of the newer tables has the same weights.
func repeated(t *table, newer []table) bool {
	return slices.ContainsFunc(newer, func(o table) bool { return maps.Equal(o.Weights, t.Weights) })
}
