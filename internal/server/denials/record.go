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

// storedAttributes lists the attributes that identify the client and the resource. The attributes that the rule counts by are
// also stored.
var storedAttributes = []string{
	"ip", "client", "user", "api_key", "service_account", "tenant", "tier", "method", "host", "path", "route",
}

// harmless lists the attributes that do not identify a client.
var harmless = []string{"method", "route", "tier"}

// maxValue is the maximum stored size of a value in bytes.
const maxValue = 256

// record contains the denials of one client by one limit. last, count, others and clients change, guarded by the log's mutex;
// the other fields are immutable.
type record struct {
	key
	first           time.Time
	last            time.Duration // since first
	count, others   int64
	clients         int // of a lead: number of clients with records
	cost, remaining int64
	retryAfter      time.Duration
	origin          headgate.Origin
	path            headgate.Path
	texts           texts
}

// bytes returns the approximate memory of a record.
func (r *record) bytes() int { return 300 + len(r.texts) }

// newRecord returns the record of a denial. It keeps no references to the observation.
func (l *Log) newRecord(ctx context.Context, now time.Time, ob *headgate.Observation, limit *headgate.LimitDecision) *record {
	r := &record{
		first: now, count: 1, cost: limit.Cost, remaining: limit.Remaining, retryAfter: limit.RetryAfter,
		origin: limit.Origin, path: limit.DecidedBy(),
	}
	trace := ""
	if l.options.TraceID != nil {
		trace = l.options.TraceID(ctx)
	}
	parts := []string{limit.Rule, limit.Name, limit.Limit.String(), ob.Decision.Version, limit.Missing, trace}
	subject := l.options.Rules().SubjectAttributes(limit.Rule, ob.Attributes)
	names := slices.Concat(storedAttributes, slices.Sorted(maps.Keys(subject)))
	for i, name := range names {
		if value := ob.Attributes[name]; value != "" && !slices.Contains(names[:i], name) {
			parts = append(parts, name, storedValue(name, value))
		}
	}
	r.texts = join(parts)
	return r
}

// storedValue returns the stored form of a value. API keys and cookies are credentials: only their hash is stored.
func storedValue(name, value string) string {
	if name == "api_key" || strings.HasPrefix(name, "cookie.") {
		return headgate.EnsureKeyHash(value)
	}
	return cut(value)
}

// cut shortens a value to maxValue bytes at a character boundary.
func cut(value string) string {
	if len(value) <= maxValue {
		return value
	}
	end := maxValue
	for end > maxValue-utf8.UTFMax && !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end]
}

// texts contains several strings in one: rule, name, limit, version of the rules, missing attribute and trace ID, then the
// attributes by name and value. So a record is two objects for the garbage collector instead of twenty.
type texts string

func join(parts []string) texts {
	var b []byte
	for _, part := range parts {
		part = cut(part)
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(part))), part...)
	}
	return texts(b)
}

// next removes and returns the first string.
func (t *texts) next() string {
	all := *t
	end := 2 + int(all[0])<<8 + int(all[1])
	*t = all[end:]
	return string(all[2:end])
}

// attributes iterates over the attributes of the request.
func (t texts) attributes() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for range 6 {
			t.next()
		}
		for len(t) > 0 && yield(t.next(), t.next()) {
		}
	}
}

// value returns an attribute of the request, or "".
func (t texts) value(name string) string {
	for n, value := range t.attributes() {
		if n == name {
			return value
		}
	}
	return ""
}

// client returns the name of the attribute that identifies the client, as headgate.Attributes.Client does.
func (t texts) client() string {
	for _, name := range []string{"api_key", "user", "ip"} {
		if t.value(name) != "" {
			return name
		}
	}
	return "client"
}

// lastAt returns the time of the last denial.
func (r *record) lastAt() time.Time { return r.first.Add(r.last) }

// show returns the visible part of a record for a query. The record must be complete or a copy.
func (l *Log) show(s *record, q *Query) Record {
	t := s.texts
	r := Record{
		First: s.first.UTC(), Last: s.lastAt().UTC(), Count: s.count, Others: s.others, Node: l.options.Node,
		Rule: t.next(), Name: t.next(), Limit: t.next(), RulesVersion: t.next(), Missing: t.next(), TraceID: t.next(),
		Origin: s.origin.String(), Subject: s.subject.String(), Attributes: headgate.Attributes{},
		Cost: s.cost, Remaining: s.remaining, Path: s.path,
	}
	if s.retryAfter >= 0 {
		r.RetryAfter = new(s.retryAfter.Seconds())
	}
	_, byClient := q.Attributes["client"]
	client := s.texts.client()
	for name, value := range s.texts.attributes() {
		_, requested := q.Attributes[name]
		if l.options.Clear || requested || byClient && name == client || slices.Contains(harmless, name) {
			r.Attributes[name] = value
		}
	}
	return r
}

// logAttrs returns the attributes of a log record.
func (r Record) logAttrs() []slog.Attr {
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
