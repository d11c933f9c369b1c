package ruledoc

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// stamp is the metadata of a file.
type stamp struct {
	name string
	info fs.FileInfo // with symbolic links followed; nil if the file does not exist
	err  string
}

func (s stamp) same(other stamp) bool {
	if s.name != other.name || s.err != other.err || (s.info == nil) != (other.info == nil) {
		return false
	}
	return s.info == nil || os.SameFile(s.info, other.info) && s.info.Size() == other.info.Size() &&
		s.info.ModTime().Equal(other.info.ModTime()) && s.info.Mode() == other.info.Mode()
}

func sameStamps(a, b []stamp) bool { return slices.EqualFunc(a, b, stamp.same) }

// anyMissing reports whether a file that existed before does not exist now.
func anyMissing(now, before []stamp) bool {
	for _, b := range before {
		if b.info != nil && !slices.ContainsFunc(now, func(n stamp) bool { return n.name == b.name && n.info != nil }) {
			return true
		}
	}
	return false
}

// scan returns the metadata of the files.
func (w *Watcher) scan() []stamp {
	names, err := listFiles(w.options.Paths)
	if err != nil {
		return []stamp{{err: err.Error()}}
	}
	stamps := make([]stamp, len(names))
	for i, name := range names {
		stamps[i].name = name
		if info, err := os.Stat(name); err != nil {
			stamps[i].err = err.Error()
		} else {
			stamps[i].info = info
		}
	}
	return stamps
}

// mayHaveChanged reports whether the files may have changed since they were last read, judging by their metadata and age.
func (w *Watcher) mayHaveChanged() bool {
	return w.readErr != nil || time.Since(w.stamped) < rereadAfterChange || time.Since(w.readAt) >= rereadInterval ||
		!sameStamps(w.scan(), w.stamps)
}

// read reads all files. If one of them changes while they are read, it starts over, up to three times, so that it does not mix
// old and new files that are replaced together.
func (w *Watcher) read() ([]source, error) {
	var (
		sources []source
		err     error
	)
	before := w.scan()
	for range 3 {
		sources, err = readFiles(w.options.Paths)
		after := w.scan()
		unchanged := sameStamps(before, after)
		before = after
		if unchanged {
			break
		}
	}
	w.readAt, w.readErr = time.Now(), err
	if !sameStamps(before, w.stamps) {
		w.stamps, w.stamped = before, w.readAt
	}
	return sources, err
}

// contentSum identifies the content of the files, or the error of reading them. It does not depend on their names.
type contentSum [sha256.Size]byte

// sumOf returns the contentSum of sources, or of the error.
func sumOf(sources []source, err error) contentSum {
	h := sha256.New()
	for _, s := range sources {
		h.Write(fmt.Appendf(nil, "%d ", len(s.Data)))
		h.Write(s.Data)
	}
	if err != nil {
		h.Write(fmt.Appendf(nil, "error %s", err))
	}
	return contentSum(h.Sum(nil))
}
