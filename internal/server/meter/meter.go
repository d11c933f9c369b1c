// Package meter adds up what subjects use of metered rules, by the day, and hands it on in batches: for billing.
//
// It knows decisions and days. It knows no database, no decision waits for one, and no unit is handed on twice.
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
	// every is how often usage is handed on. What a process has not handed on when it is killed is lost.
	every = 10 * time.Second
	// batch is how many rows are handed on at once, and maxRows how many are kept while nobody takes them.
	batch   = 5_000
	maxRows = 500_000
	shards  = 64
	// farewell is how long the last of it may take.
	farewell = 5 * time.Second
)

// Row is what a subject has used of a rule on a day since the last row of it.
type Row struct {
	// Day is that of the store's clock, in UTC: 2026-03-06.
	Day     string
	Rule    string
	Subject headgate.Subject
	// Attributes are what the subject is; nil if that is not known here, as of a commit whose reservation was made elsewhere.
	Attributes headgate.Attributes
	// Units that passed, less those that were given back, and units that were denied.
	Units, Denied int64
}

// ErrNotWritten says that rows were certainly not taken, and may be handed on again. After any other error they are lost: they may
// have been taken.
var ErrNotWritten = errors.New("not written")

// Meter adds up usage. It is safe for use by many goroutines.
type Meter struct {
	limiter *headgate.Limiter
	write   func(context.Context, []Row) error
	log     *slog.Logger
	shards  [shards]shard
	rows    atomic.Int64
	lost    atomic.Int64
}

type shard struct {
	mu      sync.Mutex
	tallies map[key]*tally
}

type key struct {
	day     int64 // since 1970
	rule    string
	subject headgate.Subject
}

type tally struct {
	attributes    headgate.Attributes
	units, denied int64
}

// New makes a meter of a limiter's decisions, which Note is told. Rows go to write, sorted, while Run runs.
func New(limiter *headgate.Limiter, write func(context.Context, []Row) error, log *slog.Logger) *Meter {
	return &Meter{limiter: limiter, write: write, log: log}
}

// Lost is how many units were not handed on, or may not have been.
func (m *Meter) Lost() int64 { return m.lost.Load() }

// Note adds up a decision.
func (m *Meter) Note(seen *headgate.Observation) {
	if seen.Err != nil {
		return
	}
	d := &seen.Decision
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Metered {
			continue
		}
		if units, denied := used(seen.Call, d, l); units != 0 || denied != 0 {
			m.add(seen.Attributes, d, l, units, denied)
		}
	}
}

// used is what a decision adds to the usage of a limit's subject.
func used(call headgate.Call, d *headgate.Decision, l *headgate.LimitDecision) (units, denied int64) {
	switch {
	case call == headgate.CallCheck && d.Allowed:
		return l.Cost, 0
	case call == headgate.CallCheck || call == headgate.CallReserve && !d.Allowed:
		return 0, l.Cost
	case call == headgate.CallReserve:
		// What is held is counted when it is committed; so is what the store could not be asked for.
		if held := l.Limit.Algorithm != headgate.LeakyBucket && l.Limit.Algorithm != headgate.SlidingLog; held || l.Receipt.Units == 0 {
			return 0, 0
		}
		return l.Cost, 0
	case l.Err != nil: // it may have been recorded
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

// put adds a tally to a shard, which is locked.
func (m *Meter) put(s *shard, k key, t *tally) {
	if s.tallies == nil {
		s.tallies = map[key]*tally{}
	}
	m.rows.Add(1)
	s.tallies[k] = t
}

// Run hands on usage until ctx ends, and then the rest.
func (m *Meter) Run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
			m.flush(ctx)
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	m.flush(last)
	if left := m.rows.Load(); left > 0 {
		m.log.ErrorContext(ctx, "usage that was not written is lost", "rows", left)
	}
}

func (m *Meter) flush(ctx context.Context) {
	for all := m.take(); len(all) > 0; {
		n := min(batch, len(all))
		rows := make([]Row, n)
		for i := range rows {
			rows[i] = all[i].row()
		}
		err := m.write(ctx, rows)
		switch {
		case errors.Is(err, ErrNotWritten):
			m.log.WarnContext(ctx, "usage waits to be written", "rows", len(all), "error", err)
			m.putBack(all)
			return
		case err != nil:
			units := int64(0)
			for i := range rows {
				units += rows[i].Units
			}
			m.lost.Add(units)
			m.log.ErrorContext(ctx, "usage may not have been written, and is not written again", "rows", n, "units", units, "error", err)
		}
		all = all[n:]
	}
}

// taken is a tally that nobody adds to any more.
type taken struct {
	key
	*tally
}

func (t taken) row() Row {
	day := time.Unix(t.day*86_400, 0).UTC().Format(time.DateOnly)
	return Row{day, t.rule, t.subject, t.attributes, t.units, t.denied}
}

// take is everything, in an order that is the same on all nodes, so that they do not wait for each other in a circle.
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

// putBack keeps what was taken for the next time.
func (m *Meter) putBack(all []taken) {
	for _, t := range all {
		s := m.shardOf(t.key)
		s.mu.Lock()
		if there := s.tallies[t.key]; there != nil {
			there.units += t.units
			there.denied += t.denied
		} else {
			m.put(s, t.key, t.tally)
		}
		s.mu.Unlock()
	}
}
