package ruledoc

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// stamp is what can be seen of a file without reading it.
type stamp struct {
	name string
	info fs.FileInfo // behind symbolic links; nil if there is none
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

// lacksAny says whether a file that was there before is not there now.
func lacksAny(now, before []stamp) bool {
	for _, b := range before {
		if b.info != nil && !slices.ContainsFunc(now, func(n stamp) bool { return n.name == b.name && n.info != nil }) {
			return true
		}
	}
	return false
}

// scan looks at the files without reading them.
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

// mayDiffer says whether the files can be others than those that were read, as far as that can be seen from outside.
func (w *Watcher) mayDiffer() bool {
	return w.readErr != nil || time.Since(w.stamped) < mistrust || time.Since(w.readAt) >= rereadEvery ||
		!sameStamps(w.scan(), w.stamps)
}

// read reads all files. If one of them changes meanwhile it begins again, a few times, so that files that are replaced
// together are not mixed, old with new.
func (w *Watcher) read() ([]source, error) {
	var (
		sources []source
		err     error
	)
	before := w.scan()
	for range 3 {
		sources, err = readFiles(w.options.Paths)
		after := w.scan()
		steady := sameStamps(before, after)
		before = after
		if steady {
			break
		}
	}
	w.readAt, w.readErr = time.Now(), err
	if !sameStamps(before, w.stamps) {
		w.stamps, w.stamped = before, w.readAt
	}
	return sources, err
}

// contentSum tells apart what files say, or why they cannot be read. Their names do not matter.
type contentSum [sha256.Size]byte

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
