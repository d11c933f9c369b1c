package memstore

import "github.com/headgate/headgate"

// side keeps the state that only some counters of a table have, so that the slots of the other counters need no space for it. A value
// is identified by a number that is not 0.
type side[T any] struct {
	all  []T      // by number - 1
	free []uint32 // numbers of unused values
}

// log is the additional state of a counter with entries of a sliding log, holds, or the time of a credit.
type log struct {
	entries            []headgate.LogEntry
	credited, lastHold int64
}

func (l *log) empty() bool { return len(l.entries) == 0 && l.credited == 0 && l.lastHold == 0 }

// ofHolders marks the number of a counter's holders, for a concurrency limit. Other numbers are those of logs.
const ofHolders = 1 << 31

// loadSide sets the additional state of a counter.
func (t *table) loadSide(n uint32, state *headgate.State) {
	if n&ofHolders != 0 {
		state.Holders = t.holders.at(n &^ ofHolders)
		return
	}
	l := t.logs.at(n)
	state.Log, state.Credited, state.LastHold = l.entries, l.credited, l.lastHold
}

// keepSide replaces the additional state with number n and returns its new number, 0 if there is none.
func (t *table) keepSide(n uint32, state *headgate.State) uint32 {
	l := log{state.Log, state.Credited, state.LastHold}
	switch {
	case len(state.Holders) > 0:
		if n&ofHolders == 0 {
			t.logs.drop(n)
			n = 0
		}
		return t.holders.put(n&^ofHolders, state.Holders) | ofHolders
	case l.empty() || n&ofHolders != 0:
		t.dropSide(n)
		if n = 0; l.empty() {
			return 0
		}
	}
	return t.logs.put(n, l)
}

// dropSide removes the additional state with number n, if there is any.
func (t *table) dropSide(n uint32) {
	if n&ofHolders != 0 {
		t.holders.drop(n &^ ofHolders)
	} else {
		t.logs.drop(n)
	}
}

// at returns value n, or the zero value if n is 0.
func (l *side[T]) at(n uint32) (value T) {
	if n != 0 {
		value = l.all[n-1]
	}
	return value
}

// put replaces value n, or adds a value if n is 0, and returns its number.
func (l *side[T]) put(n uint32, to T) uint32 {
	if n == 0 {
		n = l.number()
	}
	l.all[n-1] = to
	return n
}

// drop removes value n, unless n is 0.
func (l *side[T]) drop(n uint32) {
	if n != 0 {
		var none T
		l.all[n-1] = none
		l.free = append(l.free, n)
	}
}

// number returns an unused number.
func (l *side[T]) number() uint32 {
	if last := len(l.free) - 1; last >= 0 {
		n := l.free[last]
		l.free = l.free[:last]
		return n
	}
	var none T
	l.all = append(l.all, none)
	return uint32(len(l.all))
}
