package adminapi

import (
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"time"
)

const (
	profilePath = "/debug/pprof/{profile}"
	// longestProfile is how many seconds of the server's life one may watch.
	longestProfile = 60
	// blocksOf is how many nanoseconds goroutines wait for each wait that is noted, and contentionsOf how many contentions
	// there are for each: enough to see, and hardly felt.
	blocksOf, contentionsOf = 10_000, 10
)

// profiles are how each is taken. Those that watch take as many seconds as they are asked for, or these.
var profiles = map[string]struct {
	seconds int
	watch   func(w http.ResponseWriter) (stop func(), err error)
}{
	"allocs": {}, "goroutine": {}, "heap": {}, "threadcreate": {},
	"profile": {10, func(w http.ResponseWriter) (func(), error) { return pprof.StopCPUProfile, pprof.StartCPUProfile(w) }},
	"trace":   {1, func(w http.ResponseWriter) (func(), error) { return trace.Stop, trace.Start(w) }},
	// Waits and contentions are noted only while somebody watches; what was noted before is in them, too.
	"block": {10, func(http.ResponseWriter) (func(), error) {
		runtime.SetBlockProfileRate(blocksOf)
		return func() { runtime.SetBlockProfileRate(0) }, nil
	}},
	"mutex": {10, func(http.ResponseWriter) (func(), error) {
		before := runtime.SetMutexProfileFraction(contentionsOf)
		return func() { runtime.SetMutexProfileFraction(before) }, nil
	}},
}

// profile is for "go tool pprof" and "go tool trace". What the program was started with is not shown. There is one at a
// time, so that nobody slows a server down with many.
func (a *api) profile(c *call) (any, error) {
	name, q := c.PathValue("profile"), c.URL.Query()
	kind, ok := profiles[name]
	if !ok {
		return nil, notFound("there is no profile %q; there are allocs, block, goroutine, heap, mutex, profile (of the CPU), "+
			"threadcreate and trace", name)
	}
	if err := onlyKnown(q, "seconds"); err != nil {
		return nil, err
	}
	if kind.watch == nil && q.Get("seconds") != "" {
		return nil, badRequest("%s is what there is now: leave seconds out", name)
	}
	seconds, err := readNumber(q, "seconds", kind.seconds, 1, longestProfile)
	if err != nil {
		return nil, err
	}
	if !a.profiling.TryLock() {
		return nil, newProblem(http.StatusConflict, "somebody is taking a profile: try again when that is over, in a minute at most")
	}
	defer a.profiling.Unlock()
	c.w.Header().Set("Content-Type", "application/octet-stream")
	c.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	if kind.watch != nil {
		// The listener would cut what takes so long. What cannot be told so, as in tests, does not cut.
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(time.Duration(seconds)*time.Second + databaseTimeout))
		stop, err := kind.watch(c.w)
		if err != nil {
			return nil, newProblem(http.StatusConflict, "the profile cannot be taken now: "+err.Error())
		}
		select {
		case <-c.Context().Done():
		case <-time.After(time.Duration(seconds) * time.Second):
		}
		stop()
	}
	if stored := pprof.Lookup(name); stored != nil {
		_ = stored.WriteTo(c.w, 0) // whoever is gone is not told
	}
	return written{}, nil
}
