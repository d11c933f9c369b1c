package denials

import (
	"context"
	"encoding/binary"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
)

// kept are the attributes that say who asked, and for what. Those that the rule counts by are kept besides.
var kept = []string{
	"ip", "client", "user", "api_key", "service_account", "tenant", "tier", "method", "host", "path", "route",
}

// harmless are those that name nobody.
var harmless = []string{"method", "route", "tier"}

// mostValue is how much is kept of a value.
const mostValue = 256

// record is denials of one client by one limit. All but the first numbers stays as it is; those are the log's, whose mutex is for
// them.
type record struct {
	key
	first           time.Time
	last            time.Duration // since first
	count, others   int64
	clients         int // of a lead, those that have records
	cost, remaining int64
	retryAfter      time.Duration
	origin          headgate.Origin
	path            headgate.Path
	texts           texts
}

// bytes is what it takes, roughly.
func (r *record) bytes() int { return 300 + len(r.texts) }

// newRecord keeps what there is to know of a denial, and nothing that belongs to others.
func (l *Log) newRecord(ctx context.Context, now time.Time, seen *headgate.Observation, limit *headgate.LimitDecision) *record {
	r := &record{
		first: now, count: 1, cost: limit.Cost, remaining: limit.Remaining, retryAfter: limit.RetryAfter,
		origin: limit.Origin, path: limit.DecidedBy(),
	}
	trace := ""
	if l.options.TraceID != nil {
		trace = l.options.TraceID(ctx)
	}
	parts := []string{limit.Rule, limit.Name, limit.Limit.String(), seen.Decision.Version, limit.Missing, trace}
	subject := l.options.Rules().SubjectAttributes(limit.Rule, seen.Attributes)
	names := slices.Concat(kept, slices.Sorted(maps.Keys(subject)))
	for i, name := range names {
		if value := seen.Attributes[name]; value != "" && !slices.Contains(names[:i], name) {
			parts = append(parts, name, keep(name, value))
		}
	}
	r.texts = join(parts)
	return r
}

// keep is a value as it is kept. API keys and cookies open doors: they are kept as headgate.HashKey has them.
func keep(name, value string) string {
	if name == "api_key" || strings.HasPrefix(name, "cookie.") {
		return headgate.EnsureKeyHash(value)
	}
	return cut(value)
}

// cut keeps characters whole.
func cut(value string) string {
	if len(value) <= mostValue {
		return value
	}
	end := mostValue
	for end > mostValue-utf8.UTFMax && !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end]
}

// texts are several in one: rule, name, limit, version of the rules, missing attribute and trace, then the attributes by
// name and value. So a record is two things to the garbage collector, not twenty.
type texts string

func join(parts []string) texts {
	var b []byte
	for _, part := range parts {
		part = cut(part)
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(part))), part...)
	}
	return texts(b)
}

// next takes the first.
func (t *texts) next() string {
	all := *t
	end := 2 + int(all[0])<<8 + int(all[1])
	*t = all[end:]
	return string(all[2:end])
}

// attributes are those of the request.
func (t texts) attributes() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for range 6 {
			t.next()
		}
		for len(t) > 0 && yield(t.next(), t.next()) {
		}
	}
}

// value is an attribute of the request, "" if it has none.
func (t texts) value(name string) string {
	for n, value := range t.attributes() {
		if n == name {
			return value
		}
	}
	return ""
}

// client is the attribute that stands for client, as headgate.Attributes.Client has it.
func (t texts) client() string {
	for _, name := range []string{"api_key", "user", "ip"} {
		if t.value(name) != "" {
			return name
		}
	}
	return "client"
}

// lastAt is when the last of the denials was.
func (r *record) lastAt() time.Time { return r.first.Add(r.last) }

// show is what may be seen of a record that a query has found. Nobody changes it meanwhile: it is complete, or a copy.
func (l *Log) show(s *record, q *Query) Record {
	t := s.texts
	r := Record{
		First: s.first.UTC(), Last: s.lastAt().UTC(), Count: s.count, Others: s.others, Node: l.options.Node,
		Rule: t.next(), Name: t.next(), Limit: t.next(), RulesVersion: t.next(), Missing: t.next(), TraceID: t.next(),
		Origin: s.origin.String(), Subject: s.subject.String(), Attributes: headgate.Attributes{},
		Cost: s.cost, Remaining: s.remaining, Path: s.path,
	}
	if s.retryAfter != headgate.Never {
		r.RetryAfter = new(s.retryAfter.Seconds())
	}
	_, byClient := q.Attributes["client"]
	client := s.texts.client()
	for name, value := range s.texts.attributes() {
		_, asked := q.Attributes[name]
		if l.options.Clear || asked || byClient && name == client || slices.Contains(harmless, name) {
			r.Attributes[name] = value
		}
	}
	return r
}

// logged is a record as a line in the log.
func (r Record) logged() []slog.Attr {
	retryAfter := slog.String("retry_after", "never")
	if r.RetryAfter != nil {
		retryAfter = slog.Float64("retry_after", *r.RetryAfter)
	}
	return []slog.Attr{
		slog.Time("first", r.First), slog.Time("last", r.Last), slog.Int64("count", r.Count), slog.Int64("others", r.Others),
		slog.String("rule", r.Rule), slog.String("name", r.Name), slog.String("limit", r.Limit), slog.String("origin", r.Origin),
		slog.String("subject", r.Subject), slog.Any("attributes", r.Attributes), slog.Int64("cost", r.Cost),
		slog.Int64("remaining", r.Remaining), retryAfter, slog.String("path", string(r.Path)),
		slog.String("rules_version", r.RulesVersion), slog.String("trace_id", r.TraceID), slog.String("missing", r.Missing),
	}
}
