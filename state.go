package headgate

// State is the state of one counter in a store; its zero value is an unused counter. All times are microseconds since 1970 on the
// store's clock.
type State struct {
	// Time is when a bucket was last drained, when a sliding window or a window FromFirst began, when an aligned or calendar window
	// was last charged, or the time of the newest entry of a log. For a concurrency limit it is a lower bound on the Until of all
	// holders: exact when a holder was last dropped or added, and not raised when a holder renews its lease.
	Time int64
	// Used is the number of used units of a window, a log or all holders, or the level of a bucket in millionths of a unit.
	Used int64
	// Prev is the count of the previous window of a sliding window. For a token bucket it is how much has been given back so far,
	// in millionths modulo 2^52, which later refunds must take into account.
	Prev int64
	// Expires is the Unix second from which the state is equivalent to the zero value. A store may drop it then.
	Expires int64
	// Log has the charges of a sliding log, oldest first. For the other algorithms it has the held units by the time at which
	// their holds end, earliest first.
	Log []LogEntry
	// Holders are the holders of a concurrency limit. The one whose entry was changed last comes first. A store that keeps them
	// elsewhere may pass Decide only those that are named by charges of the call, and the number of the others in OtherHolders,
	// if none of them has expired: Time must then be later than the present.
	Holders      []SlotHolder
	OtherHolders int32
	// Credited is when a token bucket was last credited: the credit may have included the units of any earlier receipt.
	Credited int64
	// LastHold is the number of the last hold.
	LastHold int64
	// Hold is what the store keeps under the number of the hold that the current charge releases; the zero value if there is
	// nothing. It is not part of the counter's state.
	Hold Hold
}

// live returns the state, or the zero value if it has expired or is impossible.
func (s *State) live(now int64) State {
	if s.Expires*1_000_000 > now && s.possible() {
		return *s
	}
	return State{}
}

// possible reports whether the numbers are in the range that charges can produce. Other states are treated as the zero value.
func (s *State) possible() bool {
	return uint64(s.Used) <= maxUsed*scale && uint64(s.Prev) < maxExact && uint64(s.Time) <= maxTime && uint64(s.Expires) <= maxTime
}

// LogEntry is the units that were charged at one time, or the holds that end at one time. A store that keeps logs elsewhere may pass
// Decide a log with neighbouring entries merged, at the time of the newest of them, if that makes no difference for the charges.
type LogEntry struct {
	Time  int64
	Units uint32
	// Count is the number of charges or holds.
	Count uint32
}
