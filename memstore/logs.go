package memstore

import "github.com/headgate/headgate"

// logs holds the logs of a table's sliding logs, so that the slots of all the others need no room for one. A log is known
// by a number that is not 0.
type logs struct {
	held []([]headgate.LogEntry)
	free []uint32
}

func (l *logs) at(n uint32) []headgate.LogEntry {
	if n == 0 {
		return nil
	}
	return l.held[n-1]
}

// put replaces log n and returns its number; an empty log has none.
func (l *logs) put(n uint32, log []headgate.LogEntry) uint32 {
	if len(log) == 0 {
		l.drop(n)
		return 0
	}
	if n == 0 {
		n = l.number()
	}
	l.held[n-1] = log
	return n
}

func (l *logs) drop(n uint32) {
	if n != 0 {
		l.held[n-1] = nil
		l.free = append(l.free, n)
	}
}

func (l *logs) number() uint32 {
	if last := len(l.free) - 1; last >= 0 {
		n := l.free[last]
		l.free = l.free[:last]
		return n
	}
	l.held = append(l.held, nil)
	return uint32(len(l.held))
}
