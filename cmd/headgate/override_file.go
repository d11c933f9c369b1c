package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/maphash"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/wording"
	"github.com/headgate/headgate/ruledoc"
)

// maxProblems caps the number of invalid lines listed. The number of further lines is reported.
const maxProblems = 10_000

// csvErrors lists the problems of a file, each with its line.
type csvErrors []string

func (p csvErrors) Error() string { return strings.Join(p, "\n") }

// overrideFile is a valid CSV file of overrides.
type overrideFile struct {
	name string
	rows int
	sum  string // SHA-256 of the file
	// warnings name the first expired lines, at most maxExpiredWarnings.
	warnings []string
}

// maxExpiredWarnings caps the number of warnings about expired lines.
const maxExpiredWarnings = 20

// overrideColumns are the valid columns. The first three are required.
var overrideColumns = []string{"rule", "subject", "limit", "expires", "reason", "limit_name"}

// checkOverrides reads a whole file and validates each line against the rules of the server. The rules are nil if they could not be
// loaded.
func checkOverrides(ctx context.Context, name string, rules map[string]*headgate.Rule, now time.Time) (*overrideFile, error) {
	f := &overrideFile{name: name, warnings: []string{}}
	var problems csvErrors
	invalid := 0
	seen, seed := map[uint64]int{}, maphash.MakeSeed()
	sum := sha256.New()
	err := f.read(ctx, sum, func(line int, o *adminapi.Override, err error) error {
		f.rows++
		if err == nil {
			key := maphash.String(seed, o.Rule+"\x00"+o.LimitName+"\x00"+subjectText(o.Subject))
			if first := seen[key]; first > 0 {
				err = fmt.Errorf("line %d has the same subject and limit: remove one of them", first)
			}
			seen[key] = line
		}
		if err == nil && rules != nil {
			err = checkOverride(o, rules)
		}
		if err != nil {
			if invalid++; invalid <= maxProblems {
				problems = append(problems, fmt.Sprintf("%s:%d: %s", name, line, err))
			}
		} else if expiredAt(o, now) && len(f.warnings) < maxExpiredWarnings {
			f.warnings = append(f.warnings, fmt.Sprintf("%s:%d: skipped: expired at %s", name, line, formatTime(*o.ExpiresAt)))
		}
		return nil
	})
	if more := invalid - len(problems); more > 0 {
		problems = append(problems, "and "+wording.Count(more, "more line"))
	}
	switch {
	case err != nil:
		return nil, err
	case len(problems) > 0:
		return nil, problems
	}
	f.sum = hex.EncodeToString(sum.Sum(nil))
	return f, nil
}

// checkOverride validates an override against its rule, as the server does.
func checkOverride(o *adminapi.Override, rules map[string]*headgate.Rule) error {
	rule := rules[o.Rule]
	if rule == nil {
		return fmt.Errorf("rule %q not found: list the rules with headgate rules export", o.Rule)
	}
	if rule.Counter != "" {
		return ruledoc.CheckSubject(rule, o.Subject)
	}
	own := replacedLimit(o, rule)
	if names := slices.Sorted(maps.Keys(rule.Limits)); own.Count == 0 && len(names) > 0 {
		return fmt.Errorf("rule %q has no limit %q: set limit_name to one of %s", o.Rule, o.LimitName,
			strings.Join(names, ", "))
	} else if own.Count == 0 {
		return fmt.Errorf("rule %q has no limit %q: leave limit_name empty", o.Rule, o.LimitName)
	}
	if _, err := ruledoc.ParseLimit(o.Limit, own); err != nil {
		return err
	}
	return ruledoc.CheckSubject(rule, o.Subject)
}

// expiredAt reports whether the override has expired at now.
func expiredAt(o *adminapi.Override, now time.Time) bool {
	return o.ExpiresAt != nil && !o.ExpiresAt.After(now)
}

// each calls do for each row. It fails if the file has become invalid since checkOverrides.
func (f *overrideFile) each(ctx context.Context, do func(line int, o *adminapi.Override) error) error {
	return f.read(ctx, nil, func(line int, o *adminapi.Override, err error) error {
		if err != nil {
			return fmt.Errorf("%s:%d: %w: the file has changed since it was validated", f.name, line, err)
		}
		return do(line, o)
	})
}

// read calls do for each row, with the error of an invalid row. It writes all bytes of the file to sum, unless sum is nil.
func (f *overrideFile) read(ctx context.Context, sum hash.Hash, do func(line int, o *adminapi.Override, err error) error) error {
	file, err := os.Open(f.name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // opened for reading only
	var bytes io.Reader = bufio.NewReaderSize(file, 1<<16)
	if sum != nil {
		bytes = io.TeeReader(bytes, sum)
	}
	reader := csv.NewReader(bytes)
	reader.ReuseRecord, reader.FieldsPerRecord = true, -1
	head, err := reader.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return f.unreadable(err)
	}
	places, err := f.columns(head)
	if err != nil {
		return err
	}
	columns := len(head)
	for ctx.Err() == nil {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return f.unreadable(err)
		}
		line, _ := reader.FieldPos(0)
		var o adminapi.Override
		if len(record) == columns {
			o, err = parseOverride(record, places) //nolint:contextcheck // it returns immediately
		} else {
			err = fmt.Errorf("%d columns, but the header has %d: quote a subject that contains commas",
				len(record), columns)
		}
		if err := do(line, &o, err); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *overrideFile) unreadable(err error) error {
	if bad, ok := errors.AsType[*csv.ParseError](err); ok {
		return csvErrors{fmt.Sprintf("%s:%d: %s", f.name, bad.Line, bad.Err)}
	}
	return err
}

// columns returns the index of each of overrideColumns in the header, or -1 if the column is absent.
func (f *overrideFile) columns(head []string) (places []int, err error) {
	reject := func(format string, args ...any) ([]int, error) {
		return nil, csvErrors{fmt.Sprintf("%s:1: ", f.name) + fmt.Sprintf(format, args...) +
			"; expected a header such as rule,subject,limit,expires,reason"}
	}
	names := make([]string, len(head))
	for i, name := range head {
		names[i] = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))) // the byte order mark of spreadsheets
		if !slices.Contains(overrideColumns, names[i]) {
			return reject("unknown column %q", names[i])
		}
		if slices.Contains(names[:i], names[i]) {
			return reject("duplicate column %s", names[i])
		}
	}
	for i, name := range overrideColumns {
		place := slices.Index(names, name)
		if place < 0 && i < 3 {
			return reject("missing column %s", name)
		}
		places = append(places, place)
	}
	return places, nil
}

func parseOverride(record []string, places []int) (adminapi.Override, error) {
	get := func(column int) string {
		if places[column] < 0 {
			return ""
		}
		return strings.TrimSpace(record[places[column]])
	}
	o := adminapi.Override{Rule: get(0), Limit: get(2), Reason: get(4), LimitName: get(5)}
	if o.Rule == "" || o.Limit == "" {
		return o, errors.New("rule, subject and limit are required")
	}
	var err error
	if o.Subject, _, err = parseSubject(get(1)); err != nil {
		return o, err
	}
	if text := get(3); text != "" {
		at, ok := parseTime(text)
		if !ok {
			return o, fmt.Errorf("invalid expires %q: write a day such as 2026-12-01 (00:00 UTC) or a time such as "+
				"2026-12-01T18:00:00Z", text)
		}
		o.ExpiresAt = &at
	}
	return o, nil
}
