package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
)

// subjectExample is how a subject is typed.
const subjectExample = "tenant=acme or tenant=acme,user=ann"

// plainNames are of attributes that are what they are typed as, which is quick to tell where there are a million.
var plainNames = []string{"tenant", "user", "service_account", "tier", "region"}

// readSubject reads whom a rule counts, as a server would: an api_key is hashed, a network is shortened. Notes say what was
// read otherwise than it was typed. A comma within a value is written as \,
func readSubject(text string) (subject headgate.Attributes, notes []string, err error) {
	pairs := splitSubject(text)
	subject = headgate.Attributes{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || strings.HasPrefix(name, "/") {
			return nil, nil, fmt.Errorf("%q is not a subject: write what the rule counts by and its value, like %s", text, subjectExample)
		}
		if value = strings.TrimSpace(value); value != "" && len(value) <= identity.MaxValue && slices.Contains(plainNames, name) {
			subject[name] = value
		}
	}
	if len(subject) == len(pairs) {
		return subject, nil, nil
	}
	q, err := readQuestion(pairs)
	if err != nil {
		return nil, nil, fmt.Errorf("in the subject %w", err)
	}
	for _, name := range q.names {
		subject[name] = q.attributes[name]
	}
	return subject, q.notes, nil
}

func splitSubject(text string) []string {
	var pairs []string
	var pair strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && (text[i+1] == ',' || text[i+1] == '\\'):
			i++
			pair.WriteByte(text[i])
		case text[i] == ',':
			pairs = append(pairs, strings.TrimSpace(pair.String()))
			pair.Reset()
		default:
			pair.WriteByte(text[i])
		}
	}
	return append(pairs, strings.TrimSpace(pair.String()))
}

var escaper = strings.NewReplacer(`\`, `\\`, ",", `\,`)

// subjectText is what readSubject reads.
func subjectText(subject headgate.Attributes) string {
	var pairs []string
	for _, name := range sortedNames(subject) {
		pairs = append(pairs, name+"="+escaper.Replace(subject[name]))
	}
	return strings.Join(pairs, ",")
}

var days = regexp.MustCompile(`^(\d{1,5})d$`)

// readExpiry reads when something ends: a time, a day, which is its beginning in UTC, or how long from now. Nothing is
// never.
func readExpiry(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no end is no end
	}
	at, ok := readInstant(text)
	var err error
	if !ok {
		var lasts time.Duration
		if n := days.FindStringSubmatch(text); n != nil {
			count, _ := strconv.Atoi(n[1]) // it is a number
			lasts, err = time.Duration(count)*24*time.Hour, nil
		} else {
			lasts, err = time.ParseDuration(text)
		}
		at = now.Add(lasts).UTC().Truncate(time.Second)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is no end: write a day like 2026-12-01 (its beginning in UTC), a time like "+
			"2026-12-01T18:00:00Z, or how long, like 72h or 14d", text)
	case !at.After(now):
		return nil, &expiredError{at}
	}
	return &at, nil
}

// expiredError is about an end that is over.
type expiredError struct{ at time.Time }

func (e *expiredError) Error() string {
	return instant(e.at) + " is over already: write a time to come, or leave it out for no end"
}

// readInstant reads a time, or a day, which is its beginning in UTC.
func readInstant(text string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	return at, err == nil
}

// until is an end for people.
func until(at *time.Time) string {
	if at == nil {
		return "it is removed"
	}
	return instant(*at)
}
