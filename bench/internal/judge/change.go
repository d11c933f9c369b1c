package judge

import "math"

// judgeChange judges the admissions after the last change of each subject's limit. Counters keep their count, so the units that
// were certainly admitted before and after the change together are at most the new limit.
func judgeChange(t *trial) {
	for _, name := range t.names() {
		e := t.event(name, NoteChanged)
		if e == nil {
			t.find("%s: the limit was not changed", name)
			continue
		}
		limit, span := t.header.Limits[e.Limit], t.subjects[name]
		before, after, all, requested := around(span, e)
		available := max(0, limit.maximum(span[len(span)-1].Received-span[0].Sent)-before)
		if after > available {
			t.find("%s: changed to %s with %d admitted: %d more were admitted, at most %d", name, limit, before, after, available)
		}
		if least := int64(math.Ceil(t.check.Least * float64(limit.Count))); all < least && requested >= limit.Count {
			t.find("%s: changed to %s: admitted %d in total, at least %d", name, limit, all, least)
		}
		t.figure("%s to %d: %d before, %d after", name, limit.Count, before, after)
	}
}

// judgeReset judges the admissions after a counter was reset.
func judgeReset(t *trial) {
	for _, name := range t.names() {
		e := t.event(name, NoteReset)
		if e == nil {
			t.find("%s: the counter was not reset", name)
			continue
		}
		limit, span := t.limit(name), t.subjects[name]
		before, after, all, requested := around(span, e)
		if maximum := limit.maximum(span[len(span)-1].Received - e.Sent); after > maximum {
			t.find("%s: %s: %d admitted after a reset, at most %d", name, limit, after, maximum)
		}
		if float64(all-before) < t.check.Least*float64(limit.Count) && requested >= limit.Count {
			t.find("%s: %s: %d admitted during and after a reset, at least the fraction %g", name, limit, all-before, t.check.Least)
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

// around returns the units that were certainly admitted before and after an event, all admitted units, and the units that were
// requested after it.
func around(records []*Record, e *Record) (before, after, all, requested int64) {
	for _, r := range records {
		if r.Op != OpCheck || r.Error != "" {
			continue
		}
		if r.Sent >= e.Received {
			requested += r.Cost
		}
		if !r.Allowed {
			continue
		}
		all += r.Cost
		switch {
		case r.Received <= e.Sent:
			before += r.Cost
		case r.Sent >= e.Received:
			after += r.Cost
		}
	}
	return before, after, all, requested
}
