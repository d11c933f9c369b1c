package headgate

import "time"

// CalendarBounds exposes calendarBounds, also for times before those that counters support.
func CalendarBounds(l Limit, now time.Time) (start, end time.Time) { return l.calendarBounds(now) }

// Longer exposes longer.
func Longer(a, b time.Duration) bool { return longer(a, b) }

// Matcher matches rules repeatedly in the same memory, as a Limiter does.
type Matcher struct {
	view  view
	found []int32
}

// Match returns how many rules apply to a request.
func (m *Matcher) Match(s *RuleSet, a Attributes) int {
	m.view.load(s, a)
	m.found = s.match(&m.view, m.found[:0])
	m.view.reset()
	return len(m.found)
}

// MatchIDs returns the IDs of the rules that apply to a request.
func (s *RuleSet) MatchIDs(a Attributes) []string {
	var m Matcher
	m.Match(s, a)
	var ids []string
	for _, n := range m.found {
		ids = append(ids, s.rules[n].ID)
	}
	return ids
}

// SlotAgenda returns how many holders of concurrency limits are to be looked at.
func (l *Limiter) SlotAgenda() int {
	l.slots.agenda.mu.Lock()
	defer l.slots.agenda.mu.Unlock()
	return len(l.slots.agenda.items)
}
