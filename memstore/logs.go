package memstore

import "github.com/headgate/headgate"

// logs keeps the state that only some counters of a table have: the entries of a sliding log, holds, and the time of a credit. So
// the slots of the other counters need no space for it. A log is identified by a number that is not 0.
type logs struct {
	all  []log    // by number - 1
	free []uint32 // numbers of unused logs
}

// log is the additional state of one counter.
type log struct {
	entries            []headgate.LogEntry
	credited, lastHold int64
}

func (l *log) empty() bool { return len(l.entries) == 0 && l.credited == 0 && l.lastHold == 0 }

// at returns log n, or an empty log if n is 0.
func (l *logs) at(n uint32) log {
	if n == 0 {
		return log{}
	}
	return l.all[n-1]
}

// put replaces log n, or adds a log if n is 0, and returns its number. An empty log is dropped and has the number 0.
func (l *logs) put(n uint32, to log) uint32 {
	if to.empty() {
		l.drop(n)
		return 0
	}
	if n == 0 {
		n = l.number()
	}
	l.all[n-1] = to
	return n
}

// drop removes log n, unless n is 0.
func (l *logs) drop(n uint32) {
	if n != 0 {
		l.all[n-1] = log{}
		l.free = append(l.free, n)
	}
}

// number returns an unused number.
func (l *logs) number() uint32 {
	if last := len(l.free) - 1; last >= 0 {
		n := l.free[last]
		l.free = l.free[:last]
		return n
	}
	l.all = append(l.all, log{})
	return uint32(len(l.all))
}
