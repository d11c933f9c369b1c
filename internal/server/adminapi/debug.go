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
	// maxProfileSeconds is the longest duration of a profile.
	maxProfileSeconds = 60
	// blockRate samples one blocking event per this many nanoseconds of blocking, and mutexFraction one of this many mutex
	// contentions. The overhead is negligible.
	blockRate, mutexFraction = 10_000, 10
)

// profiles are the profiles by name. Profiles with a watch function have a duration, by default these seconds. The others are
// snapshots.
var profiles = map[string]struct {
	seconds int
	watch   func(w http.ResponseWriter) (stop func(), err error)
}{
	"allocs": {}, "goroutine": {}, "heap": {}, "threadcreate": {},
	"profile": {10, func(w http.ResponseWriter) (func(), error) { return pprof.StopCPUProfile, pprof.StartCPUProfile(w) }},
	"trace":   {1, func(w http.ResponseWriter) (func(), error) { return trace.Stop, trace.Start(w) }},
	// Blocking and contentions are sampled only while such a profile is taken. It also has the samples of earlier profiles.
	"block": {10, func(http.ResponseWriter) (func(), error) {
		runtime.SetBlockProfileRate(blockRate)
		return func() { runtime.SetBlockProfileRate(0) }, nil
	}},
	"mutex": {10, func(http.ResponseWriter) (func(), error) {
		before := runtime.SetMutexProfileFraction(mutexFraction)
		return func() { runtime.SetMutexProfileFraction(before) }, nil
	}},
}

// profile serves profiles for "go tool pprof" and "go tool trace". The command line is not served. Only one profile is taken at a
// time, so that profiles do not slow the server down.
func (a *api) profile(c *call) (any, error) {
	name, q := c.PathValue("profile"), c.URL.Query()
	kind, ok := profiles[name]
	if !ok {
		return nil, notFound("profile %q: not found: must be allocs, block, goroutine, heap, mutex, profile (of the CPU), "+
			"threadcreate or trace", name)
	}
	if err := rejectUnknown(q, "seconds"); err != nil {
		return nil, err
	}
	if kind.watch == nil && q.Get("seconds") != "" {
		return nil, badRequest("seconds: not allowed for %s, which is a snapshot: omit it", name)
	}
	seconds, err := readNumber(q, "seconds", kind.seconds, 1, maxProfileSeconds)
	if err != nil {
		return nil, err
	}
	if !a.profiling.TryLock() {
		return nil, newProblem(http.StatusConflict, "another profile is being taken: try again in at most a minute")
	}
	defer a.profiling.Unlock()
	c.w.Header().Set("Content-Type", "application/octet-stream")
	c.w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	if kind.watch != nil {
		// Extend the write deadline of the listener, which is shorter. Writers without a deadline, as in tests, return an error.
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(time.Duration(seconds)*time.Second + databaseTimeout))
		stop, err := kind.watch(c.w)
		if err != nil {
			return nil, newProblem(http.StatusConflict, "profile failed: "+err.Error())
		}
		select {
		case <-c.Context().Done():
		case <-time.After(time.Duration(seconds) * time.Second):
		}
		stop()
	}
	if stored := pprof.Lookup(name); stored != nil {
		_ = stored.WriteTo(c.w, 0) // the client may be gone
	}
	return written{}, nil
}
