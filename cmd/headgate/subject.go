package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

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

// expiryForms is how an expiry is given on the command line.
const expiryForms = "+3d, +72h, 2027-01-01, \"2027-01-01 09:00\" (local time) or 2027-01-01T09:00:00Z"

// expiresFlag adds the flag --expires, which parseExpiry parses.
func expiresFlag(flags *pflag.FlagSet, expires *string, usage string) {
	flags.Var((*expiryText)(expires), "expires", usage)
}

// expiryText is the value of --expires. It must not be empty: an unset variable in a script would mean never.
type expiryText string

func (*expiryText) Type() string     { return "string" }
func (e *expiryText) String() string { return string(*e) }

// Set sets the value. It is called only if the flag is given.
func (e *expiryText) Set(text string) error {
	if text == "" {
		return errors.New("write a time, or omit it to never expire")
	}
	*e = expiryText(text)
	return nil
}

// parseExpiry parses an expiry: a duration from now, with or without a plus, a day or a time in the local zone, or a time with its own
// zone. An empty text means no expiry: nil.
func parseExpiry(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // nil means that it never expires
	}
	at, ok := parseLocalTime(text, now.Location())
	var err error
	if !ok {
		var duration time.Duration
		distance := strings.TrimPrefix(text, "+")
		if n := days.FindStringSubmatch(distance); n != nil {
			count, _ := strconv.Atoi(n[1]) // the pattern allows digits only
			duration, err = time.Duration(count)*24*time.Hour, nil
		} else {
			duration, err = time.ParseDuration(distance)
		}
		at = now.Add(duration).Truncate(time.Second)
	}
	at = at.UTC()
	switch {
	case err != nil:
		return nil, fmt.Errorf("invalid expiry %q: write %s", text, expiryForms)
	case !at.After(now):
		return nil, &expiredError{at}
	}
	return &at, nil
}

// parseLocalTime parses a time in RFC 3339, or a time or day without a zone in the zone given.
func parseLocalTime(text string, zone *time.Location) (at time.Time, ok bool) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, true
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", "2006-01-02T15:04", time.DateTime, "2006-01-02T15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// expiredError reports an expiry in the past.
type expiredError struct{ at time.Time }

func (e *expiredError) Error() string {
	return formatTime(e.at) + " is in the past: use a future time, or omit it to never expire"
}

// parseTime parses a time of a file in RFC 3339, or a day, which means midnight UTC at its start: a file means the same everywhere.
func parseTime(text string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	return at, err == nil
}

// formatExpiry formats an expiry for text output, in UTC.
func formatExpiry(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return formatTime(*at)
}

// formatLocalExpiry formats an expiry that was just set: in UTC, and in the local zone, which it names, if that is another.
func formatLocalExpiry(at *time.Time, zone *time.Location) string {
	text := formatExpiry(at)
	if at == nil {
		return text
	}
	if local := at.In(zone); local.Format("-0700") != "+0000" {
		text += " (" + local.Format("2006-01-02 15:04:05 MST") + ")"
	}
	return text
}
