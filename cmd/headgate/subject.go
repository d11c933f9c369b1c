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

// subjectExample shows the syntax of a subject in error messages.
const subjectExample = "tenant=acme or tenant=acme,user=ann"

// plainNames are the attributes that need no normalization. Skipping it makes the import of a million overrides fast.
var plainNames = []string{"tenant", "user", "service_account", "tier", "region"}

// parseSubject parses a subject and normalizes it as a server does: an api_key is hashed, a network is masked. The notes list the
// values that were changed. A comma within a value is written as \,
func parseSubject(text string) (subject headgate.Attributes, notes []string, err error) {
	pairs := splitSubject(text)
	subject = headgate.Attributes{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || strings.HasPrefix(name, "/") {
			return nil, nil, fmt.Errorf("invalid subject %q: write the attributes that the rule counts by, such as %s", text, subjectExample)
		}
		if value = strings.TrimSpace(value); value != "" && len(value) <= identity.MaxValue && slices.Contains(plainNames, name) {
			subject[name] = value
		}
	}
	if len(subject) == len(pairs) {
		return subject, nil, nil
	}
	q, err := parseRequest(pairs)
	if err != nil {
		return nil, nil, fmt.Errorf("subject: %w", err)
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

// subjectText formats a subject in the syntax of parseSubject.
func subjectText(subject headgate.Attributes) string {
	var pairs []string
	for _, name := range sortedNames(subject) {
		pairs = append(pairs, name+"="+escaper.Replace(subject[name]))
	}
	return strings.Join(pairs, ",")
}

var days = regexp.MustCompile(`^(\d{1,5})d$`)

// parseExpiry parses an expiry: a time, a day (midnight UTC at its start), or a duration from now. An empty text means no expiry:
// nil.
func parseExpiry(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // nil means that it never expires
	}
	at, ok := parseTime(text)
	var err error
	if !ok {
		var duration time.Duration
		if n := days.FindStringSubmatch(text); n != nil {
			count, _ := strconv.Atoi(n[1]) // the pattern allows digits only
			duration, err = time.Duration(count)*24*time.Hour, nil
		} else {
			duration, err = time.ParseDuration(text)
		}
		at = now.Add(duration).UTC().Truncate(time.Second)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("invalid expiry %q: write a day such as 2026-12-01 (00:00 UTC), a time such as "+
			"2026-12-01T18:00:00Z, or a duration such as 72h or 14d", text)
	case !at.After(now):
		return nil, &expiredError{at}
	}
	return &at, nil
}

// expiredError reports an expiry in the past.
type expiredError struct{ at time.Time }

func (e *expiredError) Error() string {
	return formatTime(e.at) + " is in the past: use a future time, or omit it to never expire"
}

// parseTime parses a time in RFC 3339, or a day, which means midnight UTC at its start.
func parseTime(text string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	return at, err == nil
}

// formatExpiry formats an expiry for text output.
func formatExpiry(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return formatTime(*at)
}
