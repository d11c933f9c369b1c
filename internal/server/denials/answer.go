package denials

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/fanout"
)

// version of an Answer's JSON.
const version = 1

// usualAnswer and largestAnswer are how many records there are in an answer.
const (
	usualAnswer   = 100
	largestAnswer = 1_000
)

// Query asks for denials. Its zero value asks for all.
type Query struct {
	// Attributes must be the request's, all of them, and are as package identity makes them; client is the api_key, else the
	// user, else the ip. Those that can be found are ip, client, user, api_key, service_account, tenant, tier, method, host,
	// path, route, and what the rule counts by.
	Attributes headgate.Attributes `json:"attributes,omitempty"`
	// Subject is a headgate.Subject as text; "" means any. Rule is the ID of one; "" means any.
	Subject string `json:"subject,omitempty"`
	Rule    string `json:"rule,omitempty"`
	// Since is the time of the oldest denials.
	Since time.Time `json:"since,omitzero"`
	// Most is how many records there are in the answer; 0 means 100, and more than 1,000 are never given.
	Most int `json:"most,omitempty"`
}

// Answer is what a query has found.
type Answer struct {
	fanout.Header
	Records []Record `json:"records"`
	// Unrecorded is how many denials in the time asked for, of any subject and rule, are in no record, because there were
	// too many.
	Unrecorded int64 `json:"unrecorded"`
	// From is the time before which records may be gone: forgotten, or lost with the process.
	From time.Time `json:"from"`
}

// Record is denials of one client by one limit, within ten seconds, as operators are told of it. What is said of the request is that
// of the first.
type Record struct {
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Count int64     `json:"count"`
	// Others is how many more requests the limit denied that were counted on the same subject, but came from other clients,
	// too many to have a record each.
	Others int64  `json:"others"`
	Node   string `json:"node"`
	// Rule and Name of the limit; Name is empty if the rule has one limit only. Limit is in the words of rule documents.
	Rule  string `json:"rule"`
	Name  string `json:"limitName,omitempty"`
	Limit string `json:"limit"`
	// Origin is rule, tier or override.
	Origin  string `json:"origin"`
	Subject string `json:"subject"`
	// Attributes are those of the request that the operator may see.
	Attributes headgate.Attributes `json:"attributes,omitempty"`
	Cost       int64               `json:"cost"`
	Remaining  int64               `json:"remaining"`
	// RetryAfter is in seconds; null if the request could never pass.
	RetryAfter   *float64      `json:"retryAfterSeconds"`
	Path         headgate.Path `json:"path"`
	RulesVersion string        `json:"rulesVersion"`
	TraceID      string        `json:"traceId,omitempty"`
	// Missing is the attribute for whose lack the rule denies requests.
	Missing string `json:"missing,omitempty"`
}

// Answer is what this node knows, newest first.
func (l *Log) Answer(q Query) Answer {
	a := Answer{Header: fanout.Header{Version: version, Nodes: 1}, Records: []Record{}}
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
	for part := range slices.Chunk(records, atATime) {
		copies := make([]record, len(part))
		l.mu.Lock()
		for i, r := range part {
			copies[i] = *r
		}
		l.mu.Unlock()
		for i := range copies {
			if q.finds(&copies[i]) {
				found = append(found, copies[i])
			}
		}
	}
	slices.SortStableFunc(found, func(a, b record) int { return b.lastAt().Compare(a.lastAt()) })
	for i := range found[:min(len(found), q.most())] {
		a.Records = append(a.Records, l.show(&found[i], &q))
	}
	return a
}

// atATime is how many records are looked at while denials have to wait.
const atATime = 256

// Merge makes one answer to a query of those of several nodes, newest first.
func Merge(q Query, answers []Answer) Answer {
	all := Answer{Records: []Record{}}
	for _, a := range answers {
		all.Records = append(all.Records, a.Records...)
		all.Unrecorded += a.Unrecorded
		if a.From.After(all.From) {
			all.From = a.From
		}
	}
	slices.SortStableFunc(all.Records, func(a, b Record) int {
		return cmp.Or(b.Last.Compare(a.Last), strings.Compare(a.Node, b.Node))
	})
	all.Records = all.Records[:min(len(all.Records), q.most())]
	return all
}

func (q *Query) most() int {
	return min(cmp.Or(max(0, q.Most), usualAnswer), largestAnswer)
}

// Known is whether requests can be found by an attribute: one that says who asked or for what, or that a rule counts by.
func Known(name string, rules *headgate.RuleSet) bool {
	return slices.Contains(kept, name) ||
		slices.ContainsFunc(rules.Rules(), func(r headgate.Rule) bool { return slices.Contains(r.By, name) })
}

// finds is whether the record is one of those asked for.
func (q *Query) finds(s *record) bool {
	t := s.texts
	if q.Rule != "" && q.Rule != t.next() || q.Subject != "" && q.Subject != s.subject.String() || s.lastAt().Before(q.Since) {
		return false
	}
	for name, value := range q.Attributes {
		byClient := name == "client"
		if byClient {
			name = s.texts.client()
		}
		if is := s.texts.value(name); is != keep(name, value) && (!byClient || headgate.EnsureKeyHash(is) != value) {
			return false
		}
	}
	return true
}

// Hide makes a query fit for any way to other nodes: API keys and cookies, and clients, which may be an API key, are hashed. It finds
// what it would find otherwise.
func (q *Query) Hide() {
	for name, value := range q.Attributes {
		if name == "client" {
			q.Attributes[name] = headgate.EnsureKeyHash(value)
		} else {
			q.Attributes[name] = keep(name, value)
		}
	}
}
