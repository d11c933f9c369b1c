package headgate

// State is what a store remembers of one counter; its zero value is a counter never used. All times are microseconds
// since 1970 on the store's clock.
type State struct {
	// Time is when a bucket was last drained, a sliding window or a window FromFirst began, an aligned or calendar window
	// was last charged, or the newest entry of a log.
	Time int64
	// Used units of the window or the log; millionths of a unit in a bucket.
	Used int64
	// Prev is what the window before was charged, in a sliding window. In a token bucket it is how much has been given back
	// so far, in millionths, modulo 2^52: a refund must know of others.
	Prev int64
	// Expires is the Unix second from which the state means no more than the zero value. A store may forget it then.
	Expires int64
	// Log has the charges of a sliding log, oldest first. Of the other algorithms it has the units on hold by the time at which
	// they end, soonest first.
	Log []LogEntry
	// Credited is when a token bucket was last credited: a receipt from before does not know whether its units were.
	Credited int64
	// LastHold is the number of the last hold.
	LastHold int64
	// Hold is what the store keeps under the number that the charge at hand releases; the zero value if there is nothing.
	// It is not part of what a counter is.
	Hold Hold
}

// live is the state as far as it still means anything.
func (s *State) live(now int64) State {
	if s.Expires*1_000_000 > now && s.possible() {
		return *s
	}
	return State{}
}

// possible is false of numbers that no charge can have left behind. Such a state is taken for the zero value.
func (s *State) possible() bool {
	return uint64(s.Used) <= maxUsed*scale && uint64(s.Prev) < maxExact && uint64(s.Time) <= maxTime && uint64(s.Expires) <= maxTime
}

// LogEntry is units that were charged at one time, or holds that end at one time. A store that keeps a log elsewhere may hand
// Decide one in which neighbours are merged, as of the newest of them, where no charge can tell the difference.
type LogEntry struct {
	Time  int64
	Units uint32
	// Count is how many charges or holds they are of.
	Count uint32
}
