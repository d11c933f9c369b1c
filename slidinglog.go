package headgate

import "slices"

// denseLog is the number of entries from which a log is dense. An older charge is added to a sparse log as a new entry; in a dense
// log it is merged into the next newer entry and expires with it.
const denseLog = 128

// entries returns how many charges or holds a log has.
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

// addToLog records units at a time. A present charge is never older than the newest entry, even if the clock was set back. Only
// forced charges can exceed the maximum number of entries; they are then merged into the newest entry, which gets their time.
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
	s.updateTime()
}

// splice returns a copy of the log with the entries from i up to but not including j replaced. It copies because states are values.
func splice(log []LogEntry, i, j int, entries ...LogEntry) []LogEntry {
	return slices.Concat(log[:i], entries, log[j:])
}

// refundLog removes units from the entry with the given time, if it still exists.
func refundLog(s *State, at, units int64) (given int64, ok bool) {
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
		s.updateTime()
		return given, true
	}
	return 0, false
}

// updateTime sets the time of a log to that of its newest entry.
func (s *State) updateTime() {
	if n := len(s.Log); n > 0 {
		s.Time = s.Log[n-1].Time
	}
}

// creditLog removes units from the newest entries and returns how many it removed.
func creditLog(s *State, units int64) (given int64) {
	i := len(s.Log)
	for i > 0 && given < units {
		i--
		given += int64(s.Log[i].Units)
	}
	rest := max(0, given-units) // stays in the last visited entry
	if rest > 0 {
		s.Log = splice(s.Log, i, len(s.Log), LogEntry{Time: s.Log[i].Time, Units: uint32(rest), Count: s.Log[i].Count})
	} else {
		s.Log = splice(s.Log, i, len(s.Log))
	}
	s.Used -= given - rest
	s.updateTime()
	return given - rest
}
