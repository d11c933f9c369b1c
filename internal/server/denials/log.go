// Package denials stores recent denials with their reasons, so that operators can answer customers: which limit it was, how
// often, and when the request would have been allowed. It covers one node, in memory; Merge combines the results of several
// nodes.
//
// It makes no decisions, stores nothing on disk, and does not communicate with other nodes.
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
	// span is how long denials are added to a record.
	span = 10 * time.Second
	// maxRecords and maxBytes limit the stored records: over either limit the oldest are evicted. Typical records take about
	// 400 bytes, or 13 MB in total; of the longest possible ones a third fits into 32 MB.
	maxRecords = 32_768
	maxBytes   = 28 << 20
	// maxClients is the maximum number of clients of one subject that have a record each.
	maxClients = 16
	// maxSpans is the number of spans for which unrecorded denials are counted.
	maxSpans = 1_024
	// newRecords is the maximum number of new records per second, and newRecordsAtOnce the burst: otherwise clients with
	// invented subjects could displace all other records.
	newRecords       = 50
	newRecordsAtOnce = 500
	// sweepEvery is the minimum time between two sweeps, and warnEvery that between two warnings.
	sweepEvery = time.Second
	warnEvery  = time.Minute
)

// Options configures a Log.
type Options struct {
	// Rules returns the rules in use, which determine the attributes of a subject.
	Rules func() *headgate.RuleSet
	// Clear shows identifying attributes to operators. Otherwise only the hash of the subject is shown.
	Clear bool
	// Node is the name of this node.
	Node string
	// TraceID returns the trace ID of a request, or ""; nil means that there are none.
	TraceID func(context.Context) string
	// Log receives every complete record at debug level, and a warning if there are too many denials to record; nil disables
	// logging.
	Log *slog.Logger
}

// Log contains recent denials. It is safe for concurrent use.
type Log struct {
	options Options
	seed    maphash.Seed
	missed  atomic.Int64

	mu sync.Mutex
	// records is sorted by time, oldest first. The last fresh ones are not complete yet.
	records []*record
	fresh   int
	bytes   int
	from    time.Time // older records are evicted
	// open contains the fresh records. In addition, client 0 maps to the lead of each limit's subject: the first of its records.
	open     map[key]*record
	creation *rate.Limiter
	spans    []missedSpan
	sweeping bool
	warnings ratelog.Limiter
	warnedOf int64 // number of missed denials that were logged
}

// key identifies the denials of a record.
type key struct {
	subject headgate.Subject
	counter headgate.Counter
	client  uint64
}

// missedSpan is the number of unrecorded denials in a span.
type missedSpan struct {
	from  time.Time
	count int64
}

// New returns an empty log.
func New(o Options) *Log {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	now := time.Now()
	return &Log{
		options: o, seed: maphash.MakeSeed(), from: now, open: map[key]*record{},
		creation: rate.NewLimiter(newRecords, newRecordsAtOnce), warnings: ratelog.Limiter{Every: warnEvery},
	}
}

// Unrecorded returns the number of denials since the start that were not recorded because there were too many.
func (l *Log) Unrecorded() int64 { return l.missed.Load() }

// Observe records a decision if it is a denial. A record covers the denials of one client by one limit within ten seconds,
// with the attributes of the first.
func (l *Log) Observe(ctx context.Context, ob *headgate.Observation) {
	if ob.Decision.Allowed || ob.Call != headgate.CallCheck && ob.Call != headgate.CallReserve {
		return
	}
	limit := ob.Decision.DeniedBy()
	if limit == nil { // nothing was decided
		return
	}
	k := key{limit.Subject, limit.Counter, l.clientOf(ob.Attributes)}
	now := ob.Time()
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.find(k, now); r != nil {
		r.count++
		r.last = max(r.last, now.Sub(r.first)) // observations may arrive out of order
		return
	}
	lead := l.find(k.lead(), now)
	if lead != nil && lead.clients == maxClients || !l.creation.AllowN(now, 1) {
		l.miss(lead, now)
		return
	}
	r := l.newRecord(ctx, now, ob, limit)
	l.add(k, r)
	if lead == nil {
		l.open[k.lead()] = r
	} else {
		lead.clients++
	}
}

// find returns the open record of a denial, or nil.
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

// clientOf returns a hash that distinguishes the clients of one subject, so that each has its own records. It is never 0.
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

// miss counts a denial without a record: in the record of the lead if there is one.
func (l *Log) miss(lead *record, now time.Time) {
	if lead != nil {
		lead.others++
		return
	}
	l.missed.Add(1)
	if n := len(l.spans); n == 0 || now.Sub(l.spans[n-1].from) >= span {
		l.spans = append(l.spans[max(0, n+1-maxSpans):], missedSpan{from: now})
	}
	l.spans[len(l.spans)-1].count++
}

// add stores a record, and evicts the oldest ones if there are too many.
func (l *Log) add(k key, r *record) {
	r.key, r.clients = k, 1
	l.open[k] = r
	l.records = append(l.records, r)
	l.fresh++
	for l.bytes += r.bytes(); len(l.records) > maxRecords || l.bytes > maxBytes; {
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

// complete closes the oldest fresh record.
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

// sweep closes the records that are due and logs them. It schedules itself again while there are others.
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
		l.options.Log.WarnContext(ctx, "too many denied subjects: some denials are counted but not recorded",
			"unrecorded", missed)
	}
	if l.options.Log.Enabled(ctx, slog.LevelDebug) {
		for _, r := range done {
			l.options.Log.LogAttrs(ctx, slog.LevelDebug, "denied", l.show(r, &Query{}).logAttrs()...)
		}
	}
}
