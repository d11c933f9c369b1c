package headgate

import "slices"

// denseLog is how many entries a log has at least to be dense. To a sparse one an older charge is added as an entry of its
// own; in a dense one it joins the next newer entry, and stays as long as that.
const denseLog = 128

// entries returns how many charges or holds a log is of.
func entries(log []LogEntry) int64 {
	var n int64
	for i := range log {
		n += int64(log[i].Count)
	}
	return n
}

// prune drops the entries that have left the window.
func (t *Terms) prune(s *State, now int64) {
	for len(s.Log) > 0 && s.Log[0].Time+t.Window <= now {
		s.Used -= int64(s.Log[0].Units)
		s.Log = s.Log[1:]
	}
}

// logFitsAt returns when enough of the oldest entries will have left the window.
func (t *Terms) logFitsAt(s *State) int64 {
	over := s.Used + t.MinUnits - t.Capacity
	for i := range s.Log {
		if over -= int64(s.Log[i].Units); over <= 0 {
			return s.Log[i].Time + t.Window
		}
	}
	return s.Time + t.Window
}

// addToLog records units as of a time. One of the present is never older than the one before it, also when the clock was set
// back. Only forced charges can make more entries than a log may have units; they then join the newest, which stays the
// longer for it.
func addToLog(s *State, units, at int64, present bool) {
	if present {
		at = max(s.Time, at)
	}
	i := len(s.Log)
	for i > 0 && s.Log[i-1].Time >= at {
		i--
	}
	switch {
	case i < len(s.Log) && (s.Log[i].Time == at || entries(s.Log) >= denseLog):
		s.Log = splice(s.Log, i, i+1, LogEntry{Time: s.Log[i].Time, Units: s.Log[i].Units + uint32(units), Count: s.Log[i].Count})
	case i == len(s.Log) && s.Used >= MaxLogCount && entries(s.Log) >= MaxLogCount:
		last := s.Log[i-1]
		s.Log = splice(s.Log, i-1, i, LogEntry{Time: at, Units: last.Units + uint32(units), Count: last.Count})
	case i == len(s.Log):
		s.Log = append(s.Log, LogEntry{Time: at, Units: uint32(units), Count: 1})
	default:
		s.Log = splice(s.Log, i, i, LogEntry{Time: at, Units: uint32(units), Count: 1})
	}
	s.Used += units
	s.newest()
}

// splice returns a copy of the log with other entries in the place of those from i to j: states are values.
func splice(log []LogEntry, i, j int, entries ...LogEntry) []LogEntry {
	return slices.Concat(log[:i], entries, log[j:])
}

// takeFromLog gives units back to the entry of a given time, if it is still there.
func takeFromLog(s *State, at, units int64) (given int64, ok bool) {
	for i, e := range s.Log {
		if e.Time != at {
			continue
		}
		given = min(units, int64(e.Units))
		if e.Units -= uint32(given); e.Units > 0 {
			s.Log = splice(s.Log, i, i+1, e)
		} else {
			s.Log = splice(s.Log, i, i+1)
		}
		s.Used -= given
		s.newest()
		return given, true
	}
	return 0, false
}

// newest makes the time of a log that of its newest entry.
func (s *State) newest() {
	if n := len(s.Log); n > 0 {
		s.Time = s.Log[n-1].Time
	}
}

// creditLog takes units out of the newest entries and returns how many there were.
func creditLog(s *State, units int64) (given int64) {
	i := len(s.Log)
	for i > 0 && given < units {
		i--
		given += int64(s.Log[i].Units)
	}
	rest := max(0, given-units) // of the last entry looked at
	if rest > 0 {
		s.Log = splice(s.Log, i, len(s.Log), LogEntry{Time: s.Log[i].Time, Units: uint32(rest), Count: s.Log[i].Count})
	} else {
		s.Log = splice(s.Log, i, len(s.Log))
	}
	s.Used -= given - rest
	s.newest()
	return given - rest
}
