// Package meter aggregates the usage of metered rules per subject and day, and writes it in batches, for billing.
//
// It knows decisions and days, but no database. Decisions never wait for a write, and no unit is written twice.
package meter

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

const (
	// flushInterval is how often usage is written. Usage that was not yet written is lost if the process is killed.
	flushInterval = 10 * time.Second
	// batchSize is how many rows are written at once, and maxRows how many are kept in memory while writes fail.
	batchSize = 5_000
	maxRows   = 500_000
	shards    = 64
	// finalFlushTimeout limits the last flush, after Run's context has ended.
	finalFlushTimeout = 5 * time.Second
)

// Row is the usage of a rule by a subject on one day, since the previous row with the same day, rule and subject.
type Row struct {
	// Day is the day in UTC by the store's clock, such as 2026-03-06.
	Day     string
	Rule    string
	Subject headgate.Subject
	// Attributes are the subject's attributes. They are nil if this node does not know them, as for a commit of a reservation
	// that another node made.
	Attributes headgate.Attributes
	// Units is the number of units allowed, minus refunds. Denied is the number of units denied.
	Units, Denied int64
}

// ErrNotWritten means that none of the rows was written, so that they can be written again. After any other error the rows may have
// been written, so they are dropped and counted as lost.
var ErrNotWritten = errors.New("not written")

// Meter aggregates usage. It is safe for concurrent use.
type Meter struct {
	limiter *headgate.Limiter
	write   func(context.Context, []Row) error
	log     *slog.Logger
	shards  [shards]shard
	rows    atomic.Int64
	lost    atomic.Int64
}

// shard is a part of the tallies with a lock of its own.
type shard struct {
	mu      sync.Mutex
	tallies map[key]*tally
}

type key struct {
	day     int64 // since 1970
	rule    string
	subject headgate.Subject
}

// tally is the usage of a key that was not yet written.
type tally struct {
	attributes    headgate.Attributes
	units, denied int64
}

// New returns a meter for the decisions of a limiter. Pass each decision to Note. While Run runs, it passes sorted rows to write.
func New(limiter *headgate.Limiter, write func(context.Context, []Row) error, log *slog.Logger) *Meter {
	return &Meter{limiter: limiter, write: write, log: log}
}

// Lost returns how many units were not written, or may not have been written.
func (m *Meter) Lost() int64 { return m.lost.Load() }

// Note adds a decision to the usage.
func (m *Meter) Note(observation *headgate.Observation) {
	if observation.Err != nil {
		return
	}
	d := &observation.Decision
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Metered {
			continue
		}
		if units, denied := used(observation.Call, d, l); units != 0 || denied != 0 {
			m.add(observation.Attributes, d, l, units, denied)
		}
	}
}

// used returns what a decision adds to the usage of a limit's subject.
func used(call headgate.Call, d *headgate.Decision, l *headgate.LimitDecision) (units, denied int64) {
	switch {
	case call == headgate.CallCheck && d.Allowed:
		return l.Cost, 0
	case call == headgate.CallCheck || call == headgate.CallReserve && !d.Allowed:
		return 0, l.Cost
	case call == headgate.CallReserve:
		// Held units are counted when they are committed, and so are units that the store could not decide.
		if l.Held || l.Receipt.Units == 0 {
			return 0, 0
		}
		return l.Granted, 0
	case l.Err != nil: // the store may have recorded it
		return 0, 0
	case call == headgate.CallCommit || call == headgate.CallCancel:
		return l.Cost, 0
	case call == headgate.CallRefund:
		return -l.Granted, 0
	}
	return 0, 0
}

func (m *Meter) add(a headgate.Attributes, d *headgate.Decision, l *headgate.LimitDecision, units, denied int64) {
	at := d.Time
	if at.IsZero() {
		at = time.Now()
	}
	k := key{at.Unix() / 86_400, l.Rule, l.Subject}
	s := m.shardOf(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tallies[k]
	if t == nil {
		if m.rows.Load() >= maxRows {
			m.lost.Add(units)
			return
		}
		t = &tally{attributes: m.limiter.Rules().SubjectAttributes(l.Rule, a)}
		m.put(s, k, t)
	}
	t.units += units
	t.denied += denied
}

func (m *Meter) shardOf(k key) *shard { return &m.shards[k.subject[0]%shards] }

// put adds a tally to a shard. The caller holds the shard's lock.
func (m *Meter) put(s *shard, k key, t *tally) {
	if s.tallies == nil {
		s.tallies = map[key]*tally{}
	}
	m.rows.Add(1)
	s.tallies[k] = t
}

// Run writes usage periodically until ctx ends, and then writes the rest.
func (m *Meter) Run(ctx context.Context) {
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
			m.flush(ctx)
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalFlushTimeout)
	defer cancel()
	m.flush(last)
	if remaining := m.rows.Load(); remaining > 0 {
		m.log.ErrorContext(ctx, "unwritten usage lost on shutdown: the final write failed", "rows", remaining)
	}
}

// flush writes all tallies in batches. After ErrNotWritten it keeps the rest for the next flush.
func (m *Meter) flush(ctx context.Context) {
	for all := m.take(); len(all) > 0; {
		n := min(batchSize, len(all))
		rows := make([]Row, n)
		for i := range rows {
			rows[i] = all[i].row()
		}
		err := m.write(ctx, rows)
		switch {
		case errors.Is(err, ErrNotWritten):
			m.log.WarnContext(ctx, "usage not written; kept in memory, retrying at the next interval", "rows", len(all), "error", err)
			m.putBack(all)
			return
		case err != nil:
			units := int64(0)
			for i := range rows {
				units += rows[i].Units
			}
			m.lost.Add(units)
			m.log.ErrorContext(ctx, "usage may not have been written; dropped to avoid writing it twice", "rows", n, "units", units, "error", err)
		}
		all = all[n:]
	}
}

// taken is a tally that was removed from its shard, so that it no longer changes.
type taken struct {
	key
	*tally
}

func (t taken) row() Row {
	day := time.Unix(t.day*86_400, 0).UTC().Format(time.DateOnly)
	return Row{day, t.rule, t.subject, t.attributes, t.units, t.denied}
}

// take removes and returns all tallies. All nodes use the same order, so that their writes do not deadlock.
func (m *Meter) take() []taken {
	var all []taken
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		tallies := s.tallies
		s.tallies = nil
		s.mu.Unlock()
		m.rows.Add(-int64(len(tallies)))
		for k, t := range tallies {
			all = append(all, taken{k, t})
		}
	}
	slices.SortFunc(all, func(a, b taken) int {
		return cmp.Or(cmp.Compare(a.day, b.day), strings.Compare(a.rule, b.rule), slices.Compare(a.subject[:], b.subject[:]))
	})
	return all
}

// putBack returns tallies to their shards for the next flush.
func (m *Meter) putBack(all []taken) {
	for _, t := range all {
		s := m.shardOf(t.key)
		s.mu.Lock()
		if current := s.tallies[t.key]; current != nil {
			current.units += t.units
			current.denied += t.denied
		} else {
			m.put(s, t.key, t.tally)
		}
		s.mu.Unlock()
	}
}
