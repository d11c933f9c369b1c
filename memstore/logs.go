package memstore

import "github.com/headgate/headgate"

// logs keeps what only some counters of a table have: the entries of a sliding log, what is on hold, when there was a credit. So
// the slots of all the others need no room for it. A log is known by a number that is not 0.
type logs struct {
	held []log
	free []uint32
}

type log struct {
	entries            []headgate.LogEntry
	credited, lastHold int64
}

func (l *log) empty() bool { return len(l.entries) == 0 && l.credited == 0 && l.lastHold == 0 }

func (l *logs) at(n uint32) log {
	if n == 0 {
		return log{}
	}
	return l.held[n-1]
}

// put replaces log n and returns its number; an empty log has none.
func (l *logs) put(n uint32, to log) uint32 {
	if to.empty() {
		l.drop(n)
		return 0
	}
	if n == 0 {
		n = l.number()
	}
	l.held[n-1] = to
	return n
}

func (l *logs) drop(n uint32) {
	if n != 0 {
		l.held[n-1] = log{}
		l.free = append(l.free, n)
	}
}

func (l *logs) number() uint32 {
	if last := len(l.free) - 1; last >= 0 {
		n := l.free[last]
		l.free = l.free[:last]
		return n
	}
	l.held = append(l.held, log{})
	return uint32(len(l.held))
}
