package judge

import "math"

// judgeChange looks at what was admitted after the last change of each subject's limit. Counters keep what they have
// counted, so that what was certainly admitted before and after the change is together at most the new limit.
func judgeChange(t *trial) {
	for _, name := range t.names() {
		e := t.event(name, NoteChanged)
		if e == nil {
			t.find("%s: the limit was not changed", name)
			continue
		}
		limit, span := t.header.Limits[e.Limit], t.subjects[name]
		before, after, all, asked := around(span, e)
		room := max(0, limit.most(span[len(span)-1].Answered-span[0].Sent)-before)
		if after > room {
			t.find("%s: changed to %s with %d admitted: %d more were admitted, at most %d", name, limit, before, after, room)
		}
		if least := int64(math.Ceil(t.check.Least * float64(limit.Count))); all < least && asked >= limit.Count {
			t.find("%s: changed to %s: admitted %d in all, at least %d", name, limit, all, least)
		}
		t.figure("%s to %d: %d before, %d after", name, limit.Count, before, after)
	}
}

// judgeReset looks at what was admitted after a counter was reset.
func judgeReset(t *trial) {
	for _, name := range t.names() {
		e := t.event(name, NoteReset)
		if e == nil {
			t.find("%s: the counter was not reset", name)
			continue
		}
		limit, span := t.limit(name), t.subjects[name]
		before, after, _, asked := around(span, e)
		if most := limit.most(span[len(span)-1].Answered - e.Sent); after > most {
			t.find("%s: %s: %d admitted after a reset, at most %d", name, limit, after, most)
		}
		if float64(after) < t.check.Least*float64(limit.Count) && asked >= limit.Count {
			t.find("%s: %s: %d admitted after a reset, at least the part %g", name, limit, after, t.check.Least)
		}
		t.figure("%s: %d before a reset, %d after it, of %d", name, before, after, limit.Count)
	}
}

// event returns the last event of a subject with a note.
func (t *trial) event(name, note string) (last *Record) {
	for _, e := range t.events {
		if e.Subject == name && e.Note == note {
			last = e
		}
	}
	return last
}

// around returns the units that were certainly admitted before and after an event, all that were admitted, and the units
// that were asked for after it.
func around(records []*Record, e *Record) (before, after, all, asked int64) {
	for _, r := range records {
		if r.Op != OpCheck || r.Error != "" {
			continue
		}
		if r.Sent >= e.Answered {
			asked += r.Cost
		}
		if !r.Allowed {
			continue
		}
		all += r.Cost
		switch {
		case r.Answered <= e.Sent:
			before += r.Cost
		case r.Sent >= e.Answered:
			after += r.Cost
		}
	}
	return before, after, all, asked
}
