// Package denials remembers what was denied lately and why, so that a customer who asks afterwards gets an answer: which
// limit it was, how often, and when the request could have passed. It is of one node, in memory; Merge makes one answer of
// those of several nodes.
//
// It knows decisions, and what operators may be shown of them. It decides nothing, keeps nothing on disk, and asks no other
// node: whoever calls it does.
package denials

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/ratelog"
)

const (
	// span is for how long denials are added to a record.
	span = 10 * time.Second
	// mostRecords and mostBytes are what is kept, whichever is reached first: the oldest go. Usual records take some 400
	// bytes, so that all of them are 13 MB; of the longest possible there are a third in 32 MB.
	mostRecords = 32_768
	mostBytes   = 28 << 20
	// mostClients is how many clients have a record each where they are counted as one subject.
	mostClients = 16
	// mostSpans is for how many spans it is known how many denials were not recorded.
	mostSpans = 1_024
	// newRecords is how many records are made per second and newRecordsAtOnce how many in a burst: else clients that make up
	// subjects could displace what is known of all others.
	newRecords       = 50
	newRecordsAtOnce = 500
	// sweepEvery is the least time between two looks for what is complete, and warnEvery that between warnings.
	sweepEvery = time.Second
	warnEvery  = time.Minute
)

// Options of a Log.
type Options struct {
	// Rules are those in force: they say what a subject is.
	Rules func() *headgate.RuleSet
	// Clear says that operators are shown names. If not, they see hashes of them.
	Clear bool
	// Node is the name of this one.
	Node string
	// TraceID is that of a request, "" if it has none; nil means that none has.
	TraceID func(context.Context) string
	// Log is told every record once it is complete, at level debug, and warned if denials are too many to record; nil means
	// that nobody is.
	Log *slog.Logger
}

// Log is what was denied lately. It is safe for use by many goroutines.
type Log struct {
	options Options
	seed    maphash.Seed
	missed  atomic.Int64

	mu sync.Mutex
	// records begin with the oldest. The last few of them, of number fresh, are not complete yet.
	records []*record
	fresh   int
	bytes   int
	from    time.Time // older ones are gone
	// open are the fresh ones, and besides, under client 0, the lead of each limit's subject: the first of its records.
	open     map[key]*record
	pace     *rate.Limiter
	spans    []missedSpan
	sweeping bool
	warnings ratelog.Limiter
	warnedOf int64 // of those missed
}

// key is what the denials in a record have in common.
type key struct {
	subject headgate.Subject
	counter headgate.Counter
	client  uint64
}

// missedSpan is how many denials were not recorded from a time on.
type missedSpan struct {
	from  time.Time
	count int64
}

// New makes a log of nothing yet.
func New(o Options) *Log {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	now := time.Now()
	return &Log{
		options: o, seed: maphash.MakeSeed(), from: now, open: map[key]*record{},
		pace: rate.NewLimiter(newRecords, newRecordsAtOnce), warnings: ratelog.Limiter{Every: warnEvery},
	}
}

// Unrecorded is how many denials were not recorded since the start, because there were too many.
func (l *Log) Unrecorded() int64 { return l.missed.Load() }

// Note is told of every decision, and keeps those that deny a request. A record is of one client's denials by one limit
// within ten seconds, and the first of them stands for all.
func (l *Log) Note(ctx context.Context, seen *headgate.Observation) {
	if seen.Decision.Allowed || seen.Call != headgate.CallCheck && seen.Call != headgate.CallReserve {
		return
	}
	limit := seen.Decision.DeniedBy()
	if limit == nil { // nothing was decided
		return
	}
	k := key{limit.Subject, limit.Counter, l.clientOf(seen.Attributes)}
	now := seen.Time()
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.find(k, now); r != nil {
		r.count++
		r.last = max(r.last, now.Sub(r.first)) // another may have waited less
		return
	}
	lead := l.find(k.lead(), now)
	if lead != nil && lead.clients == mostClients || !l.pace.AllowN(now, 1) {
		l.miss(lead, now)
		return
	}
	r := l.newRecord(ctx, now, seen, limit)
	l.add(k, r)
	if lead == nil {
		l.open[k.lead()] = r
	} else {
		lead.clients++
	}
}

// find is the record to which a denial of now belongs, or nil.
func (l *Log) find(k key, now time.Time) *record {
	if r := l.open[k]; r != nil && now.Sub(r.first) < span {
		return r
	}
	return nil
}

func (k key) lead() key {
	k.client = 0
	return k
}

// clientOf tells apart the clients that a rule counts as one subject, so that each finds its denials. It is never 0.
func (l *Log) clientOf(a headgate.Attributes) uint64 {
	sum := uint64(1)
	add := func(value string) {
		sum *= 31
		if value != "" {
			sum += maphash.String(l.seed, value)
		}
	}
	user, apiKey, account := a["user"], a["api_key"], a["service_account"]
	add(user)
	add(apiKey)
	add(account)
	add(a["tenant"])
	if user == "" && apiKey == "" && account == "" {
		add(a["ip"])
	}
	return sum | 1
}

// miss counts a denial that gets no record: in that of the lead, if there is one.
func (l *Log) miss(lead *record, now time.Time) {
	if lead != nil {
		lead.others++
		return
	}
	l.missed.Add(1)
	if n := len(l.spans); n == 0 || now.Sub(l.spans[n-1].from) >= span {
		l.spans = append(l.spans[max(0, n+1-mostSpans):], missedSpan{from: now})
	}
	l.spans[len(l.spans)-1].count++
}

// add keeps a record, and lets go of the oldest if there are too many.
func (l *Log) add(k key, r *record) {
	r.key, r.clients = k, 1
	l.open[k] = r
	l.records = append(l.records, r)
	l.fresh++
	for l.bytes += r.bytes(); len(l.records) > mostRecords || l.bytes > mostBytes; {
		if l.fresh == len(l.records) {
			l.complete()
		}
		l.bytes -= l.records[0].bytes()
		l.records[0] = nil
		l.records = l.records[1:]
		l.from = l.records[0].first
	}
	if !l.sweeping {
		l.sweeping = true
		time.AfterFunc(span, l.sweep)
	}
}

// complete ends the oldest of the fresh records.
func (l *Log) complete() *record {
	r := l.records[len(l.records)-l.fresh]
	l.fresh--
	for _, k := range []key{r.key, r.lead()} {
		if l.open[k] == r {
			delete(l.open, k)
		}
	}
	return r
}

// sweep ends the records that are due and tells of them. It comes back as long as there are others.
func (l *Log) sweep() {
	now := time.Now()
	var done []*record
	l.mu.Lock()
	l.sweeping = false
	for l.fresh > 0 && !l.sweeping {
		if left := span - now.Sub(l.records[len(l.records)-l.fresh].first); left > 0 {
			l.sweeping = true
			time.AfterFunc(max(left, sweepEvery), l.sweep)
		} else {
			done = append(done, l.complete())
		}
	}
	missed := l.missed.Load() - l.warnedOf
	warn := false
	if missed > 0 {
		if _, warn = l.warnings.Allow(""); warn {
			l.warnedOf += missed
		}
	}
	l.mu.Unlock()
	ctx := context.Background()
	if warn {
		l.options.Log.WarnContext(ctx, "too many subjects are denied to record each: some denials are only counted",
			"unrecorded", missed)
	}
	if l.options.Log.Enabled(ctx, slog.LevelDebug) {
		for _, r := range done {
			l.options.Log.LogAttrs(ctx, slog.LevelDebug, "denied", l.show(r, &Query{}).logged()...)
		}
	}
}
