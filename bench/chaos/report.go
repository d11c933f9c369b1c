package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/internal/paired"
)

// The aims.
const (
	maxP99      = 15 * time.Millisecond // the deadline, and five
	maxP50      = 1.2                   // of before, from one second after the return on
	maxRecovery = time.Second
	minWindow   = 0.8 // of the limit, in a whole window without the store
	maxWindow   = 1.0 // and one unit for each node
	maxEdge     = 2.0 // in the window when the store goes or comes
	maxHealthy  = 1.5 // p99 of shards that are well, of before
	backAgain   = 0.95
)

// row is one line of the table.
type row struct {
	name           string
	errors, fives  int
	before, during tail
	after          tail
	going, whole   span // admitted of the hot subject in windows, as parts of its limit
	coming, later  span
	buckets        []bucket
	recovery       time.Duration
	p50            float64
	opened         []int
	unaccounted    string
	failed         []string
}

// tail is how long answers took.
type tail struct {
	n              int
	p50, p99, p999 time.Duration
}

func (t tail) String() string {
	if t.n == 0 {
		return "–"
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
	return ms(t.p50) + " / " + ms(t.p99) + " / " + ms(t.p999)
}

// span is the least and the most of some numbers.
type span struct {
	n           int
	least, most float64
}

func (s *span) add(v float64) {
	if s.n == 0 {
		s.least, s.most = v, v
	}
	s.n++
	s.least, s.most = min(s.least, v), max(s.most, v)
}

func (s span) String() string {
	switch {
	case s.n == 0:
		return "–"
	case s.least == s.most:
		return fmt.Sprintf("%.2f", s.most)
	}
	return fmt.Sprintf("%.2f–%.2f", s.least, s.most)
}

// rows are those of a fault: all of it, and if it has hit a part of the store what went on beside.
func (o *outcome) rows() []row {
	all := o.row(o.fault.name, func(*sample) bool { return true })
	o.countWindows(&all)
	o.countBuckets(&all)
	o.judge(&all)
	if o.hit == nil {
		return []row{all}
	}
	well := o.row(o.fault.name+": the other shards", func(s *sample) bool { return !o.hit[s.User] })
	well.aim("errors", well.errors == 0 && well.fives == 0)
	well.aim("p99", float64(well.during.p99) <= maxHealthy*float64(well.before.p99))
	well.aim("leaves the store", o.stored(o.begin, o.back, func(s *sample) bool { return !o.hit[s.User] }) >= backAgain)
	return []row{all, well}
}

func (o *outcome) row(name string, in func(*sample) bool) row {
	r := row{name: name, recovery: -1, unaccounted: "–"}
	for i := range o.samples {
		s := &o.samples[i]
		switch {
		case s.At < o.measured || !in(s):
		case s.Status >= 500:
			r.fives++
		case s.Status != 200:
			r.errors++
		}
	}
	r.before = o.tail(o.measured, o.begin, in)
	r.during = o.tail(o.begin, o.back, in)
	r.after = o.tail(o.back, o.back+after, in)
	late := o.tail(o.back+time.Second, o.back+after, in)
	if r.before.n > 0 && late.n > 0 {
		r.p50 = float64(late.p50) / float64(r.before.p50)
	}
	return r
}

// tail is of what was due in a time, but for what the machine stood still in.
func (o *outcome) tail(from, to time.Duration, in func(*sample) bool) tail {
	var took []time.Duration
	for i := range o.samples {
		if s := &o.samples[i]; s.At >= from && s.At < to && s.Status != 0 && in(s) && !o.stalls.during(s) {
			took = append(took, s.Latency)
		}
	}
	return tailOf(took)
}

// late is how much later than due requests were sent, of which no node knows.
func (o *outcome) late() tail {
	late := make([]time.Duration, len(o.samples))
	for i := range late {
		late[i] = o.samples[i].Late
	}
	return tailOf(late)
}

// stood is the part of all requests that are left out for the machine's sake.
func (o *outcome) stood() float64 {
	var n float64
	for i := range o.samples {
		n += float64(count(o.stalls.during(&o.samples[i])))
	}
	return n / float64(len(o.samples))
}

func tailOf(took []time.Duration) tail {
	return tail{len(took), paired.Quantile(0.5, took), paired.Quantile(0.99, took), paired.Quantile(0.999, took)}
}

// stored is the part of the answers of a time that are the store's, not a number if there are none.
func (o *outcome) stored(from, to time.Duration, in func(*sample) bool) float64 {
	var all, stored float64
	for i := range o.samples {
		s := &o.samples[i]
		if s.At < from || s.At >= to || !in(s) || o.stalls.during(s) {
			continue
		}
		all++
		if s.byStore() {
			stored++
		}
	}
	return stored / all
}

// recovered is when the store decides again for good, since it is back: the end of the last tenth of a second in which
// it did not.
func (o *outcome) recovered() time.Duration {
	from := o.back
	if o.fault.cold {
		from = o.begin
	}
	const slice = 100 * time.Millisecond
	var last time.Duration
	for t := time.Duration(0); from+t+slice <= o.back+after; t += slice {
		if o.stored(from+t, from+t+slice, func(*sample) bool { return true }) < backAgain {
			last = t + slice
		}
	}
	return last
}

// countWindows sorts the windows of the hot subject by when they were: in which the store failed, all without it, in which it
// recovered, and after.
func (o *outcome) countWindows(r *row) {
	if !o.fault.stays {
		r.recovery = o.recovered()
	}
	admitted := map[int64]int{}
	for i := range o.samples {
		if s := &o.samples[i]; s.hot() && s.Path != "" {
			admitted[s.Reset.Round(window).UnixNano()] += count(s.Allowed)
		}
	}
	recovered := o.back + max(0, r.recovery)
	for end, n := range admitted {
		to := time.Unix(0, end).Sub(o.start)
		from := to - window
		part := float64(n) / limit
		switch {
		case from < 0 || to > o.stop:
		case from >= o.begin && to <= o.back && !o.fault.flaps:
			r.whole.add(part)
		case from > recovered:
			r.later.add(part)
		case to > o.back:
			r.coming.add(part)
		case to > o.begin: // where the store comes and goes, all of them
			r.going.add(part)
		}
	}
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (o *outcome) judge(r *row) {
	f := o.fault
	r.aim("errors", r.errors == 0 && r.fives == 0)
	r.aim("p99", r.during.p99 <= maxP99)
	r.aim("p50 after", r.p50 <= maxP50)
	r.aim("recovery", r.recovery <= maxRecovery || f.overload)
	more := float64(len(o.opened)) / limit
	r.aim("admits too much", r.whole.most <= maxWindow+f.share+more)
	r.aim("admits too little", r.whole.n == 0 || r.whole.least >= max(minWindow, f.least))
	r.aim("window of transition", max(r.going.most, r.coming.most) <= maxEdge)
	o.judgeBuckets(r)
	if o.accounts {
		r.unaccounted = fmt.Sprintf("%d / %d + %d", o.unaccounted, o.unanswered, o.leaseLost)
		r.aim("unaccounted", o.unaccounted <= o.unanswered+o.leaseLost)
	}
	r.opened = o.opened
	r.aim("circuit", f.flaps || f.overload || o.openedMost <= 1)
	// Nodes that decide by themselves have opened a circuit; if not, it is the log that is misread.
	withoutStore := o.stored(o.begin, o.back, func(*sample) bool { return true }) < 0.5
	r.aim("no open circuit seen", !withoutStore || f.overload || o.openedMost > 0)
}

// bySlowness is true of a row that has missed nothing but what a slow machine makes one miss, and one that stood still.
func (r *row) bySlowness(stood bool) bool {
	for _, aim := range r.failed {
		switch aim {
		case "p99", "p50 after":
		case "recovery", "circuit", "leaves the store":
			if !stood {
				return false
			}
		default:
			return false
		}
	}
	return len(r.failed) > 0
}

func (r *row) aim(what string, met bool) {
	if !met {
		r.failed = append(r.failed, what)
	}
}

var header = table([]string{
	"fault", "errors, 5xx", "ms before", "during", "after", "admitted: failing", "unavailable", "recovering", "after",
	"token bucket", "s to recover",
	"p50 after ÷ before", "circuit opened, by node", "unaccounted / unanswered + lease lost", "verdict",
}) + "|" + strings.Repeat("---|", 15) + "\n"

// table is one line of it.
func table(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

func (r *row) String() string {
	dash := func(have bool, text string) string {
		if have {
			return text
		}
		return "–"
	}
	verdict := "PASS"
	if len(r.failed) > 0 {
		verdict = "FAIL: " + strings.Join(r.failed, ", ")
	}
	return table([]string{
		r.name, fmt.Sprintf("%d, %d", r.errors, r.fives), r.before.String(), r.during.String(), r.after.String(),
		r.going.String(), r.whole.String(), r.coming.String(), r.later.String(), bucketsText(r.buckets),
		dash(r.recovery >= 0, fmt.Sprintf("%.1f", r.recovery.Seconds())),
		dash(r.p50 > 0, fmt.Sprintf("%.2f", r.p50)), dash(r.opened != nil, openings(r.opened)), r.unaccounted, verdict,
	})
}

// openings are one number for each node if they are few.
func openings(by []int) string {
	if len(by) > nodeCount {
		return fmt.Sprintf("%d at most", slices.Max(by))
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(by), "[]"), " ", " / ")
}
