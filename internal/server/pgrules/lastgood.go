package pgrules

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/server/pgrules/pgdb"
)

// The last good file has lines: a checksum, the kind of object, and the object. The first section is a snapshot of everything.
// Later changes are appended, a section for each. A line with a position ends each section. Lines after the last position belong to
// a section that was not committed, and are ignored.
const (
	// LastGoodFormat is the version of the last good file. Files of another version are not read.
	LastGoodFormat = 1

	// minAppended is how many bytes of changes are appended at least before a new snapshot is written.
	minAppended = 16 << 20

	kindFormat    = 'F'
	kindRule      = 'R'
	kindOverride  = 'O'
	kindExemption = 'X'
	kindPosition  = 'A'
)

// savedPosition ends a section.
type savedPosition struct {
	position
	Since time.Time `json:"since"`
}

// lastGoodFile is the file with the last good state. Without a path nothing is saved.
type lastGoodFile struct {
	path     string
	since    time.Time // when the last position was saved
	snapshot int64     // size of the snapshot, in bytes
	appended int64     // size of the changes appended to it, in bytes
	outdated bool      // the file does not match the state in use
}

// needsSnapshot reports whether a new snapshot should be written instead of appending to the file.
func (l *lastGoodFile) needsSnapshot() bool {
	return l.path != "" && (l.outdated || l.appended > max(minAppended, l.snapshot))
}

// sectionWriter writes a section of the last good file. commit returns the first error of all writes.
type sectionWriter struct {
	lastGood *lastGoodFile
	file     *os.File
	lines    *bufio.Writer
	size     int64
	snapshot bool
	err      error
}

// begin starts a section with these rules: a snapshot in a new file, or changes appended to the current file.
func (l *lastGoodFile) begin(snapshot bool, rules []pgdb.RateLimitRule) *sectionWriter {
	w := &sectionWriter{lastGood: l, snapshot: snapshot}
	switch {
	case l.path == "":
		return w
	case snapshot:
		w.file, w.err = os.CreateTemp(filepath.Dir(l.path), "."+filepath.Base(l.path)+".*") // 0600: it names customers
	case l.outdated:
		w.err = errors.New("the file does not match the state in use")
	default:
		w.file, w.err = os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND, 0)
	}
	if w.err != nil {
		return w
	}
	w.lines = bufio.NewWriterSize(w.file, 64<<10)
	if snapshot {
		w.write(kindFormat, LastGoodFormat)
	}
	for i := range rules {
		w.write(kindRule, &rules[i])
	}
	return w
}

// override writes an override. It does not use encoding/json, since there may be a million overrides.
func (w *sectionWriter) override(o *overrideRow) {
	if w.err != nil || w.lines == nil {
		return
	}
	b := strconv.AppendInt([]byte{kindOverride}, o.RuleID, 10)
	for _, text := range []string{o.Limit, o.Subject, o.Text, o.Reason} {
		b = strconv.AppendQuote(append(b, ' '), text)
	}
	expires := int64(0)
	if o.Expires != nil {
		expires = o.Expires.Unix()
	}
	b = strconv.AppendInt(append(b, ' '), expires, 10)
	b = strconv.AppendBool(append(b, ' '), o.Removed)
	w.put(b)
}

// write writes an object as JSON.
func (w *sectionWriter) write(kind byte, object any) {
	if w.err != nil || w.lines == nil {
		return
	}
	text, err := json.Marshal(object)
	if err != nil {
		w.err = err
		return
	}
	w.put(append([]byte{kind}, text...))
}

// put writes a line with its checksum.
func (w *sectionWriter) put(text []byte) {
	n, err := fmt.Fprintf(w.lines, "%08x %s\n", crc32.ChecksumIEEE(text), text)
	w.size, w.err = w.size+int64(n), err
}

// commit ends the section with a position, so that it is used by the next start.
func (w *sectionWriter) commit(at position) error {
	if w.lines == nil && w.err == nil {
		return nil
	}
	now := time.Now().UTC().Truncate(time.Second)
	w.write(kindPosition, savedPosition{at, now})
	if w.err == nil {
		w.err = w.lines.Flush()
	}
	if w.err == nil {
		w.err = w.file.Sync()
	}
	if w.err == nil && w.snapshot {
		w.err = os.Rename(w.file.Name(), w.lastGood.path)
	}
	if w.err != nil {
		w.abort()
		return fmt.Errorf("%s: last good state not saved, so it would not survive a restart: %w", w.lastGood.path, w.err)
	}
	_ = w.file.Close() // the data is synced
	w.lastGood.since, w.lastGood.outdated = now, false
	if w.snapshot {
		w.lastGood.snapshot, w.lastGood.appended = w.size, 0
	} else {
		w.lastGood.appended += w.size
	}
	return nil
}

// abort drops the section. The file no longer matches the state in use.
func (w *sectionWriter) abort() {
	w.lastGood.outdated = w.lastGood.path != ""
	if w.file == nil {
		return
	}
	_ = w.file.Close()
	if w.snapshot {
		_ = os.Remove(w.file.Name())
	}
}

// startFromLastGood puts the last good state in force. It returns an error if there is none.
func (f *Follower) startFromLastGood(ctx context.Context) error {
	if f.lastGood.path == "" {
		return errors.New("no last good state: set last_good_file in the config, so that the next start does not need PostgreSQL")
	}
	err := f.readLastGood(ctx)
	if err != nil {
		f.lastGood.outdated = true
		return fmt.Errorf("%s: %w", f.lastGood.path, err)
	}
	return nil
}

// readLastGood reads the last good file and puts its state in force. It truncates the file after the last committed section.
func (f *Follower) readLastGood(ctx context.Context) error {
	file, err := os.Open(f.lastGood.path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // the file is only read
	saved, err := readSections(file)
	if err != nil {
		return err
	}
	if err := os.Truncate(f.lastGood.path, saved.last); err != nil { // the rest was not committed
		return err
	}
	rules := ruleSet{}
	set, err := f.adopt(ctx, rules, saved.rules, saved.at.position)
	if err != nil {
		return err
	}
	discard := &sectionWriter{lastGood: &lastGoodFile{}}
	if err := f.replace(rules, discard, savedExceptions(file, 0, saved.first)); err != nil {
		return err
	}
	if err := f.apply(rules, discard, savedExceptions(file, saved.first, saved.last)); err != nil {
		return err
	}
	f.lastGood.since, f.lastGood.snapshot, f.lastGood.appended = saved.at.Since, saved.first, saved.last-saved.first
	f.setInUse(rules, set, saved.at.position)
	return nil
}

// savedSections is the content of a last good file, without overrides and exemptions.
type savedSections struct {
	at          savedPosition
	rules       []pgdb.RateLimitRule // in the order in which they changed
	first, last int64                // offsets of the ends of the first and the last section
}

// readSections reads the rules and the positions of all committed sections.
func readSections(file io.ReaderAt) (saved savedSections, err error) {
	var rules []pgdb.RateLimitRule // of a section that may not be committed
	for line := range savedLines(file, 0, math.MaxInt64) {
		switch line.kind {
		case kindFormat:
			if string(line.text) != strconv.Itoa(LastGoodFormat) {
				return saved, fmt.Errorf("format %s is not supported: this version reads format %d", line.text, LastGoodFormat)
			}
		case kindRule:
			var rule pgdb.RateLimitRule
			if err := json.Unmarshal(line.text, &rule); err != nil {
				return saved, err
			}
			rules = append(rules, rule)
		case kindPosition:
			if err := json.Unmarshal(line.text, &saved.at); err != nil {
				return saved, err
			}
			saved.rules, rules, saved.last = append(saved.rules, rules...), nil, line.end
			if saved.first == 0 {
				saved.first = line.end
			}
		}
	}
	if saved.last == 0 {
		return saved, errors.New("no valid state found: the file is damaged or is not a last good file")
	}
	return saved, nil
}

// savedLine is a line and the offset of its end. The text is valid until the next line is read.
type savedLine struct {
	kind byte
	text []byte
	end  int64
}

// savedLines returns the lines between two offsets of a file, up to the first damaged line.
func savedLines(file io.ReaderAt, from, to int64) iter.Seq[savedLine] {
	return func(yield func(savedLine) bool) {
		lines := bufio.NewReaderSize(io.NewSectionReader(file, from, to-from), 256<<10)
		for at := from; ; {
			text, err := lines.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) { // a document may be long
				start := bytes.Clone(text)
				text, err = lines.ReadBytes('\n')
				text = append(start, text...)
			}
			at += int64(len(text))
			if err != nil || len(text) < 11 || text[8] != ' ' {
				return
			}
			body := text[9 : len(text)-1]
			sum, err := strconv.ParseUint(string(text[:8]), 16, 32)
			if err != nil || sum != uint64(crc32.ChecksumIEEE(body)) || !yield(savedLine{body[0], body[1:], at}) {
				return
			}
		}
	}
}

// savedExceptions returns the overrides and exemptions between two offsets of a file.
func savedExceptions(file io.ReaderAt, from, to int64) exceptionRows {
	return exceptionRows{
		savedRows(file, from, to, kindOverride, parseOverride), savedRows(file, from, to, kindExemption, parseExemption),
	}
}

// savedRows returns the lines of one kind between two offsets of a file.
func savedRows[T any](file io.ReaderAt, from, to int64, kind byte, parse func([]byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for line := range savedLines(file, from, to) {
			if line.kind != kind {
				continue
			}
			if row, err := parse(line.text); !yield(row, err) || err != nil {
				return
			}
		}
	}
}

func parseOverride(line []byte) (o overrideRow, err error) {
	id, rest, _ := strings.Cut(string(line), " ")
	if o.RuleID, err = strconv.ParseInt(id, 10, 64); err != nil {
		return o, err
	}
	for _, field := range []*string{&o.Limit, &o.Subject, &o.Text, &o.Reason} {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return o, err
		}
		if *field, err = strconv.Unquote(quoted); err != nil {
			return o, err
		}
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	expires, removed, _ := strings.Cut(rest, " ")
	seconds, err := strconv.ParseInt(expires, 10, 64)
	if err != nil {
		return o, err
	}
	if seconds != 0 {
		o.Expires = new(time.Unix(seconds, 0))
	}
	o.Removed, err = strconv.ParseBool(removed)
	return o, err
}

func parseExemption(line []byte) (x exemptionRow, err error) {
	err = json.Unmarshal(line, &x)
	return x, err
}
