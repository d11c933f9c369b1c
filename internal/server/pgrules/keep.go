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

// The last good state is a file of lines: a checksum, what kind of thing the line is, and the thing. It begins with all there was;
// what has changed since is appended. A line with a position ends each of them, and what stands behind the last such line does not
// count.
const (
	keptFormat = 1
	// minAppended is how much is appended at least before all is written anew.
	minAppended = 16 << 20

	kindFormat    = 'F'
	kindRule      = 'R'
	kindOverride  = 'O'
	kindExemption = 'X'
	kindPosition  = 'A'
)

// keptPosition ends a part.
type keptPosition struct {
	position
	Since time.Time `json:"since"`
}

// keeper writes the file. It has no path if nothing is to be kept.
type keeper struct {
	path            string
	since           time.Time // of the last position that was kept
	whole, appended int64     // bytes
	broken          bool      // the file is not what is in use
}

// wantsAll is true if the file should be written anew.
func (k *keeper) wantsAll() bool {
	return k.path != "" && (k.broken || k.appended > max(minAppended, k.whole))
}

// keeping is a part of the file that is being written. Its errors come at its end.
type keeping struct {
	keeper *keeper
	file   *os.File
	lines  *bufio.Writer
	size   int64
	whole  bool
	err    error
}

// begin writes everything to a new file if it is the whole, and else appends changes to the present one.
func (k *keeper) begin(whole bool, rules []pgdb.RateLimitRule) *keeping {
	w := &keeping{keeper: k, whole: whole}
	switch {
	case k.path == "":
		return w
	case whole:
		w.file, w.err = os.CreateTemp(filepath.Dir(k.path), "."+filepath.Base(k.path)+".*") // 0600: it names customers
	case k.broken:
		w.err = errors.New("what was kept before is not known")
	default:
		w.file, w.err = os.OpenFile(k.path, os.O_WRONLY|os.O_APPEND, 0)
	}
	if w.err != nil {
		return w
	}
	w.lines = bufio.NewWriterSize(w.file, 64<<10)
	if whole {
		w.write(kindFormat, keptFormat)
	}
	for i := range rules {
		w.write(kindRule, &rules[i])
	}
	return w
}

// override is written by hand: there may be a million.
func (w *keeping) override(o *overrideRow) {
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

func (w *keeping) write(kind byte, thing any) {
	if w.err != nil || w.lines == nil {
		return
	}
	text, err := json.Marshal(thing)
	if err != nil {
		w.err = err
		return
	}
	w.put(append([]byte{kind}, text...))
}

func (w *keeping) put(text []byte) {
	n, err := fmt.Fprintf(w.lines, "%08x %s\n", crc32.ChecksumIEEE(text), text)
	w.size, w.err = w.size+int64(n), err
}

// end makes it count.
func (w *keeping) end(at position) error {
	if w.lines == nil && w.err == nil {
		return nil
	}
	now := time.Now().UTC().Truncate(time.Second)
	w.write(kindPosition, keptPosition{at, now})
	if w.err == nil {
		w.err = w.lines.Flush()
	}
	if w.err == nil {
		w.err = w.file.Sync()
	}
	if w.err == nil && w.whole {
		w.err = os.Rename(w.file.Name(), w.keeper.path)
	}
	if w.err != nil {
		w.forget()
		return fmt.Errorf("cannot keep the last good state in %s, so it would not survive a restart: %w", w.keeper.path, w.err)
	}
	_ = w.file.Close() // it is synced
	w.keeper.since, w.keeper.broken = now, false
	if w.whole {
		w.keeper.whole, w.keeper.appended = w.size, 0
	} else {
		w.keeper.appended += w.size
	}
	return nil
}

// forget makes it not count.
func (w *keeping) forget() {
	w.keeper.broken = w.keeper.path != ""
	if w.file == nil {
		return
	}
	_ = w.file.Close()
	if w.whole {
		_ = os.Remove(w.file.Name())
	}
}

// startFromKept takes what was kept into use. The error says why there is nothing.
func (f *Follower) startFromKept(ctx context.Context) error {
	if f.keep.path == "" {
		return errors.New("nothing is kept on disk: name a file in keep, and the next start does not need PostgreSQL")
	}
	err := f.readKept(ctx)
	if err != nil {
		f.keep.broken = true
		return fmt.Errorf("%s: %w", f.keep.path, err)
	}
	return nil
}

func (f *Follower) readKept(ctx context.Context) error {
	file, err := os.Open(f.keep.path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it is only read
	kept, err := readParts(file)
	if err != nil {
		return err
	}
	if err := os.Truncate(f.keep.path, kept.last); err != nil { // what is behind it was never finished
		return err
	}
	rules := ruleSet{}
	set, err := f.adopt(ctx, rules, kept.rules, kept.at.position)
	if err != nil {
		return err
	}
	nowhere := &keeping{keeper: &keeper{}}
	if err := f.replace(rules, nowhere, keptExceptions(file, 0, kept.first)); err != nil {
		return err
	}
	if err := f.apply(rules, nowhere, keptExceptions(file, kept.first, kept.last)); err != nil {
		return err
	}
	f.keep.since, f.keep.whole, f.keep.appended = kept.at.Since, kept.first, kept.last-kept.first
	f.used(rules, set, kept.at.position)
	return nil
}

// keptParts is what a file has, but for overrides and exemptions.
type keptParts struct {
	at          keptPosition
	rules       []pgdb.RateLimitRule // in the order of their changes
	first, last int64                // where the first and the last part end
}

func readParts(file io.ReaderAt) (kept keptParts, err error) {
	var rules []pgdb.RateLimitRule // of a part that may not be finished
	for line := range keptLines(file, 0, math.MaxInt64) {
		switch line.kind {
		case kindFormat:
			if string(line.text) != strconv.Itoa(keptFormat) {
				return kept, fmt.Errorf("it has format %s and this program reads %d", line.text, keptFormat)
			}
		case kindRule:
			var rule pgdb.RateLimitRule
			if err := json.Unmarshal(line.text, &rule); err != nil {
				return kept, err
			}
			rules = append(rules, rule)
		case kindPosition:
			if err := json.Unmarshal(line.text, &kept.at); err != nil {
				return kept, err
			}
			kept.rules, rules, kept.last = append(kept.rules, rules...), nil, line.end
			if kept.first == 0 {
				kept.first = line.end
			}
		}
	}
	if kept.last == 0 {
		return kept, errors.New("it is damaged, or something else")
	}
	return kept, nil
}

// keptLine is one line, as long as it is looked at, and where it ends.
type keptLine struct {
	kind byte
	text []byte
	end  int64
}

// keptLines are the lines of a part of a file, up to the first that is damaged.
func keptLines(file io.ReaderAt, from, to int64) iter.Seq[keptLine] {
	return func(yield func(keptLine) bool) {
		lines := bufio.NewReaderSize(io.NewSectionReader(file, from, to-from), 256<<10)
		for at := from; ; {
			text, err := lines.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) { // a document may be long
				begins := bytes.Clone(text)
				text, err = lines.ReadBytes('\n')
				text = append(begins, text...)
			}
			at += int64(len(text))
			if err != nil || len(text) < 11 || text[8] != ' ' {
				return
			}
			body := text[9 : len(text)-1]
			sum, err := strconv.ParseUint(string(text[:8]), 16, 32)
			if err != nil || sum != uint64(crc32.ChecksumIEEE(body)) || !yield(keptLine{body[0], body[1:], at}) {
				return
			}
		}
	}
}

// keptExceptions are the overrides and exemptions in a part of a file.
func keptExceptions(file io.ReaderAt, from, to int64) exceptionRows {
	return exceptionRows{
		keptRows(file, from, to, kindOverride, parseOverride), keptRows(file, from, to, kindExemption, parseExemption),
	}
}

// keptRows are the lines of one kind in a part of a file.
func keptRows[T any](file io.ReaderAt, from, to int64, kind byte, parse func([]byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for line := range keptLines(file, from, to) {
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
	for _, into := range []*string{&o.Limit, &o.Subject, &o.Text, &o.Reason} {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return o, err
		}
		if *into, err = strconv.Unquote(quoted); err != nil {
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
