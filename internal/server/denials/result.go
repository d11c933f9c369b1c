package denials

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/fanout"
)

// version is the version of the JSON format of a Result.
const version = 1

// defaultRecords and maxResult are the default and the maximum number of records of a result.
const (
	defaultRecords = 100
	maxResult      = 1_000
)

// Query selects denials. Its zero value selects all.
type Query struct {
	// Attributes must all match those of the request, as package identity normalizes them; client matches the api_key, else
	// the user, else the ip. Supported are ip, client, user, api_key, service_account, tenant, tier, method, host, path,
	// route, and the attributes that the rule counts by.
	Attributes headgate.Attributes `json:"attributes,omitempty"`
	// Subject is a headgate.Subject as text, and Rule the ID of a rule; "" means any.
	Subject string `json:"subject,omitempty"`
	Rule    string `json:"rule,omitempty"`
	// Since excludes denials before this time.
	Since time.Time `json:"since,omitzero"`
	// Limit is the maximum number of records; 0 means 100, and at most 1,000 are returned.
	Limit int `json:"most,omitempty"`
}

// Result contains the denials that match a query.
type Result struct {
	fanout.Header
	Records []Record `json:"records"`
	// Unrecorded is the number of denials since Query.Since, of any subject and rule, that have no record because there were
	// too many.
	Unrecorded int64 `json:"unrecorded"`
	// From is the time before which records may be missing: evicted, or lost with the process.
	From time.Time `json:"from"`
}

// Record describes the denials of one client by one limit within ten seconds, as shown to operators. The attributes are those
// of the first request.
type Record struct {
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Count int64     `json:"count"`
	// Others is the number of further denials of the same subject by the limit, from clients that have no record of their own
	// because there are too many.
	Others int64  `json:"others"`
	Node   string `json:"node"`
	// Rule is the ID of the rule and Name the name of the limit, which is empty if the rule has only one. Limit is in the
	// syntax of rule documents.
	Rule  string `json:"rule"`
	Name  string `json:"limitName,omitempty"`
	Limit string `json:"limit"`
	// Origin is rule, tier or override.
	Origin  string `json:"origin"`
	Subject string `json:"subject"`
	// Attributes are the attributes of the request that the operator may see.
	Attributes headgate.Attributes `json:"attributes,omitempty"`
	Cost       int64               `json:"cost"`
	Remaining  int64               `json:"remaining"`
	// RetryAfter is in seconds; null if the request can never be allowed, or if it is unknown when.
	RetryAfter   *float64      `json:"retryAfterSeconds"`
	Path         headgate.Path `json:"path"`
	RulesVersion string        `json:"rulesVersion"`
	TraceID      string        `json:"traceId,omitempty"`
	// Missing is the required attribute that the request lacks.
	Missing string `json:"missing,omitempty"`
}

// Result returns the matching denials of this node, newest first.
func (l *Log) Result(q Query) Result {
	a := Result{Header: fanout.Header{Version: version, Nodes: 1}, Records: []Record{}}
	l.mu.Lock()
	records := slices.Clone(l.records)
	a.From = l.from.UTC()
	for _, s := range l.spans {
		if s.from.Add(span).After(q.Since) {
			a.Unrecorded += s.count
		}
	}
	l.mu.Unlock()
	var found []record
	for part := range slices.Chunk(records, chunkSize) {
		copies := make([]record, len(part))
		l.mu.Lock()
		for i, r := range part {
			copies[i] = *r
		}
		l.mu.Unlock()
		for i := range copies {
			if q.matches(&copies[i]) {
				found = append(found, copies[i])
			}
		}
	}
	slices.SortStableFunc(found, func(a, b record) int { return b.lastAt().Compare(a.lastAt()) })
	for i := range found[:min(len(found), q.limit())] {
		a.Records = append(a.Records, l.show(&found[i], &q))
	}
	return a
}

// chunkSize is the number of records that are copied while mu is held.
const chunkSize = 256

// Merge combines the results of several nodes for a query, newest first.
func Merge(q Query, results []Result) Result {
	all := Result{Records: []Record{}}
	for _, a := range results {
		all.Records = append(all.Records, a.Records...)
		all.Unrecorded += a.Unrecorded
		if a.From.After(all.From) {
			all.From = a.From
		}
	}
	slices.SortStableFunc(all.Records, func(a, b Record) int {
		return cmp.Or(b.Last.Compare(a.Last), strings.Compare(a.Node, b.Node))
	})
	all.Records = all.Records[:min(len(all.Records), q.limit())]
	return all
}

func (q *Query) limit() int {
	return min(cmp.Or(max(0, q.Limit), defaultRecords), maxResult)
}

// Searchable reports whether denials can be searched by an attribute: one that identifies the client or the resource, or one
// that a rule counts by.
func Searchable(name string, rules *headgate.RuleSet) bool {
	return slices.Contains(storedAttributes, name) ||
		slices.ContainsFunc(rules.Rules(), func(r headgate.Rule) bool { return slices.Contains(r.By, name) })
}

// matches reports whether the record matches the query.
func (q *Query) matches(s *record) bool {
	t := s.texts
	if q.Rule != "" && q.Rule != t.next() || q.Subject != "" && q.Subject != s.subject.String() || s.lastAt().Before(q.Since) {
		return false
	}
	for name, value := range q.Attributes {
		byClient := name == "client"
		if byClient {
			name = s.texts.client()
		}
		if stored := s.texts.value(name); stored != storedValue(name, value) && (!byClient || headgate.EnsureKeyHash(stored) != value) {
			return false
		}
	}
	return true
}

// Hide hashes API keys and cookies in a query, and clients, which may be an API key, so that it can be sent to other nodes.
// It matches the same records.
func (q *Query) Hide() {
	for name, value := range q.Attributes {
		if name == "client" {
			q.Attributes[name] = headgate.EnsureKeyHash(value)
		} else {
			q.Attributes[name] = storedValue(name, value)
		}
	}
}
