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

// mostProblems is how many wrong lines are named; how many more there are is said.
const mostProblems = 10_000

// csvErrors are what is wrong with a file, each with its line.
type csvErrors []string

func (p csvErrors) Error() string { return strings.Join(p, "\n") }

// overrideFile is a CSV file of overrides that was found to be sound.
type overrideFile struct {
	name string
	rows int
	sum  string // of its bytes
	// warnings name the lines of overrides that have expired, the first of them.
	warnings []string
}

// mostExpired is how many lines are named that have expired.
const mostExpired = 20

// overrideColumns are what a file may have; the first three it must.
var overrideColumns = []string{"rule", "subject", "limit", "expires", "reason", "limit_name"}

// checkOverrides reads a whole file, and holds each line to the rules of the server. Rules is nil if they are not known.
func checkOverrides(ctx context.Context, name string, rules map[string]*headgate.Rule, now time.Time) (*overrideFile, error) {
	f := &overrideFile{name: name, warnings: []string{}}
	var problems csvErrors
	wrong := 0
	seen, seed := map[uint64]int{}, maphash.MakeSeed()
	sum := sha256.New()
	err := f.read(ctx, sum, func(line int, o *adminapi.Override, err error) error {
		f.rows++
		if err == nil {
			key := maphash.String(seed, o.Rule+"\x00"+o.LimitName+"\x00"+subjectText(o.Subject))
			if first := seen[key]; first > 0 {
				err = fmt.Errorf("line %d is about the same subject and limit: leave one of them", first)
			}
			seen[key] = line
		}
		if err == nil && rules != nil {
			err = checkOverride(o, rules)
		}
		if err != nil {
			if wrong++; wrong <= mostProblems {
				problems = append(problems, fmt.Sprintf("%s:%d: %s", name, line, err))
			}
		} else if expiredAt(o, now) && len(f.warnings) < mostExpired {
			f.warnings = append(f.warnings, fmt.Sprintf("%s:%d: it has expired at %s, and is left out", name, line, instant(*o.ExpiresAt)))
		}
		return nil
	})
	if more := wrong - len(problems); more > 0 {
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

// checkOverride says what is wrong with an override in view of its rule, as the server would.
func checkOverride(o *adminapi.Override, rules map[string]*headgate.Rule) error {
	rule := rules[o.Rule]
	if rule == nil {
		return fmt.Errorf("rule %q: there is none: headgate rules export shows what there is", o.Rule)
	}
	own := replacedLimit(o, rule)
	if names := slices.Sorted(maps.Keys(rule.Limits)); own.Count == 0 && len(names) > 0 {
		return fmt.Errorf("rule %q has no limit %q: write one of %s into the column limit_name", o.Rule, o.LimitName,
			strings.Join(names, ", "))
	} else if own.Count == 0 {
		return fmt.Errorf("rule %q has no limit %q: leave limit_name empty", o.Rule, o.LimitName)
	}
	if _, err := ruledoc.ParseLimit(o.Limit, own); err != nil {
		return err
	}
	return ruledoc.CheckSubject(rule, o.Subject)
}

// expiredAt reports whether the override has no effect any more.
func expiredAt(o *adminapi.Override, now time.Time) bool {
	return o.ExpiresAt != nil && !o.ExpiresAt.After(now)
}

// each calls do for each row.
func (f *overrideFile) each(ctx context.Context, do func(line int, o *adminapi.Override) error) error {
	return f.read(ctx, nil, func(line int, o *adminapi.Override, err error) error {
		if err != nil {
			return fmt.Errorf("%s:%d: %w: it has been changed meanwhile", f.name, line, err)
		}
		return do(line, o)
	})
}

// read calls do for each row, with what is wrong with it. Sum, if there is one, gets all bytes.
func (f *overrideFile) read(ctx context.Context, sum hash.Hash, do func(line int, o *adminapi.Override, err error) error) error {
	file, err := os.Open(f.name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
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
			o, err = overrideOf(record, places) //nolint:contextcheck // it is over at once
		} else {
			err = fmt.Errorf("there are %d columns, and the first line names %d: write a subject with commas in quotes",
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

// columns says where each column is; -1 if it is not.
func (f *overrideFile) columns(head []string) (places []int, err error) {
	deny := func(format string, args ...any) ([]int, error) {
		return nil, csvErrors{fmt.Sprintf("%s:1: ", f.name) + fmt.Sprintf(format, args...) +
			"; the first line is like rule,subject,limit,expires,reason"}
	}
	names := make([]string, len(head))
	for i, name := range head {
		names[i] = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))) // which spreadsheets write first
		if !slices.Contains(overrideColumns, names[i]) {
			return deny("there is no column %q", names[i])
		}
		if slices.Contains(names[:i], names[i]) {
			return deny("the column %s is there twice", names[i])
		}
	}
	for i, name := range overrideColumns {
		place := slices.Index(names, name)
		if place < 0 && i < 3 {
			return deny("the column %s is missing", name)
		}
		places = append(places, place)
	}
	return places, nil
}

func overrideOf(record []string, places []int) (adminapi.Override, error) {
	get := func(column int) string {
		if places[column] < 0 {
			return ""
		}
		return strings.TrimSpace(record[places[column]])
	}
	o := adminapi.Override{Rule: get(0), Limit: get(2), Reason: get(4), LimitName: get(5)}
	if o.Rule == "" || o.Limit == "" {
		return o, errors.New("it needs a rule, a subject and a limit")
	}
	var err error
	if o.Subject, _, err = readSubject(get(1)); err != nil {
		return o, err
	}
	if text := get(3); text != "" {
		at, ok := readInstant(text)
		if !ok {
			return o, fmt.Errorf("expires is %q: write a day like 2026-12-01 (its beginning in UTC) or a time like "+
				"2026-12-01T18:00:00Z", text)
		}
		o.ExpiresAt = &at
	}
	return o, nil
}
