package ruledoc

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// notices are the system's word that something happened in a directory. They make a change known at once; that it
// becomes known at all does not depend on them. The zero value gives none.
type notices struct {
	watcher *fsnotify.Watcher // nil if there are none
	events  <-chan fsnotify.Event
	errors  <-chan error
	err     error // why some or all do not come
	told    bool  // err was taken
}

func newNotices() notices {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return notices{err: err}
	}
	return notices{watcher: watcher, events: watcher.Events, errors: watcher.Errors}
}

// takeErr is why notices do not come, once.
func (n *notices) takeErr() error {
	if n.told || n.err == nil {
		return nil
	}
	n.told = true
	return n.err
}

func (n *notices) close() {
	if n.watcher != nil {
		_ = n.watcher.Close() // its goroutine ends either way
	}
}

// follow asks for notice of everything that can change what the paths lead to. Directories may have come, gone or been
// replaced since it was last asked.
func (n *notices) follow(paths []string, files []stamp) {
	if n.watcher == nil {
		return
	}
	wanted := map[string]bool{}
	for _, p := range paths {
		addDirectories(wanted, p)
	}
	for _, f := range files {
		if f.info != nil {
			addDirectories(wanted, f.name)
		}
	}
	for _, dir := range n.watcher.WatchList() {
		if !wanted[dir] {
			_ = n.watcher.Remove(dir) // it may have gone by itself
		}
	}
	for dir := range wanted {
		if err := n.watcher.Add(dir); err != nil && !os.IsNotExist(err) && n.err == nil {
			n.err = &fs.PathError{Op: "watch", Path: dir, Err: err}
		}
	}
}

// addDirectories adds the directories in which the path can be made to lead elsewhere: its own, that of each symbolic
// link on the way, and itself if it is one. If it does not exist it is the nearest directory that does. They go by
// their real names, so that a link that is pointed elsewhere leaves nothing behind.
func addDirectories(wanted map[string]bool, path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	add := func(dir string) bool {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return false
		}
		wanted[resolved] = true
		return true
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		add(path)
	}
	for dir := filepath.Dir(path); !add(dir) && dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
	}
	for p := path; p != filepath.Dir(p); p = filepath.Dir(p) {
		if info, err := os.Lstat(p); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		add(filepath.Dir(p))
		if target, err := filepath.EvalSymlinks(p); err == nil {
			add(filepath.Dir(target))
		}
	}
}
