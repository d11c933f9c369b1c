package headgate

import "time"

// CalendarBounds lets the tests of calendars look further back than counters do.
func CalendarBounds(l Limit, now time.Time) (start, end time.Time) { return l.calendarBounds(now) }

// MatchIDs are the rules that apply to a request.
func (s *RuleSet) MatchIDs(a Attributes) []string {
	var v view
	v.look(&s.slots, a)
	var ids []string
	for _, n := range s.match(&v, nil) {
		ids = append(ids, s.rules[n].ID)
	}
	return ids
}
