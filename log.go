package headgate

// prune drops the entries that have left the window.
func (t *Terms) prune(s *State, now int64) {
	for len(s.Log) > 0 && s.Log[0].Time+t.Window <= now {
		s.Used -= s.Log[0].Units
		s.Log = s.Log[1:]
	}
}

// logFitsAt is when enough of the oldest entries will have left the window.
func (t *Terms) logFitsAt(s *State) int64 {
	over := s.Used + t.Least - t.Capacity
	for _, e := range s.Log {
		if over -= e.Units; over <= 0 {
			return e.Time + t.Window
		}
	}
	return s.Time + t.Window
}

// addToLog adds an entry to a copy: states are values. One of the present is never older than the one before it, also when
// the clock was set back. Only forced charges can make more entries than a log may have units; they are then added to the
// next newer, or to the newest, which stays the longer for it.
func addToLog(s *State, units, at int64, present bool) {
	if present {
		at = max(s.Time, at)
	}
	i := len(s.Log)
	for i > 0 && s.Log[i-1].Time >= at {
		i--
	}
	log := make([]LogEntry, i, len(s.Log)+1)
	copy(log, s.Log)
	newer := s.Log[i:]
	switch full := len(s.Log) >= MaxLogCount; {
	case len(newer) > 0 && (newer[0].Time == at || full):
		log = append(log, LogEntry{Time: newer[0].Time, Units: newer[0].Units + units})
		newer = newer[1:]
	case full:
		log[i-1] = LogEntry{Time: at, Units: log[i-1].Units + units}
	default:
		log = append(log, LogEntry{Time: at, Units: units})
	}
	log = append(log, newer...)
	s.Time, s.Used, s.Log = log[len(log)-1].Time, s.Used+units, log
}

// takeFromLog gives units back to the entry of a given time, if it is still there.
func takeFromLog(s *State, at, units int64) (given int64, ok bool) {
	for i, e := range s.Log {
		if e.Time != at {
			continue
		}
		given = min(units, e.Units)
		log := make([]LogEntry, 0, len(s.Log))
		log = append(log, s.Log[:i]...)
		if e.Units > given {
			log = append(log, LogEntry{Time: e.Time, Units: e.Units - given})
		}
		s.Log = append(log, s.Log[i+1:]...)
		s.Used -= given
		if n := len(s.Log); n > 0 {
			s.Time = s.Log[n-1].Time
		}
		return given, true
	}
	return 0, false
}
