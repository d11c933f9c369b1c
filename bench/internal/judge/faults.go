package judge

// judgeLosses judges the clock-aligned windows whose demand exceeded the limit. A node that is killed or stopped may lose the
// units that it held.
func judgeLosses(t *trial) {
	var windows, hits int
	var worst int64
	for _, name := range t.names() {
		limit, records := t.limit(name), t.subjects[name]
		requested, admitted := map[int64]int64{}, map[int64]int64{}
		callers := map[int]map[int]bool{}
		for _, r := range records {
			if r.Op != OpCheck {
				continue
			}
			if callers[r.Process] == nil {
				callers[r.Process] = map[int]bool{}
			}
			callers[r.Process][r.Caller] = true
			from, to := r.Span()
			requested[from-from%limit.Window] += r.Cost
			if r.Allowed && r.Error == "" {
				admitted[from-from%limit.Window] += r.Cost
				if next := to - to%limit.Window; next > from {
					admitted[next] += r.Cost
				}
			}
		}
		first, last := records[0].Sent, records[len(records)-1].Sent
		for start, demand := range requested {
			if start < first || start+limit.Window > last || demand < limit.Count*6/5 {
				continue
			}
			windows++
			allowed := float64(limit.Count) / 100
			for _, e := range t.events {
				if (e.Note == NoteKill || e.Note == NoteStop) && e.Sent < start+limit.Window && e.Received >= start {
					hits++
					allowed += t.check.Allowance*float64(limit.Count)/float64(t.header.Nodes) + float64(len(callers[e.Process]))
				}
			}
			lost := limit.Count - admitted[start]
			worst = max(worst, lost)
			if float64(lost) > allowed {
				t.find("%s: %s: %d units lost in the window from %d, at most %.1f", name, limit, lost, start, allowed)
			}
		}
	}
	if windows == 0 {
		t.find("%s: no whole window had more demand than its limit", t.label())
	}
	t.figure("%s: %d windows with %d kills and stops, %d units lost at worst", t.label(), windows, hits, worst)
}

// judgeOutage judges the admissions while the store was dead. A subject that was first used then has its whole limit. For
// other subjects, only the windows within the outage count.
func judgeOutage(t *trial) {
	var down, up int64
	for _, e := range t.events {
		switch e.Note {
		case NoteDown:
			down = e.Received
		case NoteUp:
			up = e.Sent
		}
	}
	if down == 0 || up < down {
		t.find("%s: there was no outage", t.label())
		return
	}
	for _, name := range t.names() {
		o := outage{trial: t, name: name, limit: t.limit(name), down: down, up: up}
		for _, r := range t.subjects[name] {
			if !r.Allowed && r.Error == "" && r.RetryAfter < 0 {
				o.forever++
			}
		}
		if o.forever > 0 {
			t.find("%s: %s: %d denials without a wait", name, o.limit, o.forever)
		}
		switch {
		case o.limit.Clock:
			o.windows()
		case t.subjects[name][0].Sent >= down:
			o.fresh()
		default:
			o.ongoing()
		}
	}
}

type outage struct {
	*trial
	name     string
	limit    Limit
	down, up int64
	forever  int
}

// fresh compares the admissions with a counter that was unused when the outage began.
func (o *outage) fresh() {
	var during []*Record
	for _, r := range o.subjects[o.name] {
		if r.Op == OpCheck && r.Received <= o.up {
			during = append(during, r)
		}
	}
	got := units(admissions(during))
	model := replay(o.limit, during, o.down)
	o.compare(got, model)
	if maximum := model + int64(o.header.Nodes); got > maximum {
		o.find("%s: %s admitted %d in the outage, at most %d", o.name, o.limit, got, maximum)
	}
}

// ongoing compares the admissions with a counter that was in use before the outage.
func (o *outage) ongoing() {
	var during []*Record
	for _, r := range o.subjects[o.name] {
		if r.Op == OpCheck && r.Sent >= o.down && r.Received <= o.up {
			during = append(during, r)
		}
	}
	o.compare(units(admissions(during)), replay(o.limit, o.subjects[o.name], o.down)-replay(o.limit, o.subjects[o.name], o.up))
}

func (o *outage) compare(got, model int64) {
	o.figure("%s %d of %d", o.name, got, model)
	o.least(got, model, "in the outage")
}

func (o *outage) least(got, model int64, when string) {
	if float64(got) < o.check.Least*float64(model) {
		o.find("%s: %s admitted %d of %d %s, at least the fraction %g", o.name, o.limit, got, model, when, o.check.Least)
	}
}

// replay returns the units that a counter without any caching would have admitted of the requests sent since a time.
func replay(limit Limit, records []*Record, since int64) (admitted int64) {
	return replayAt(limit, records, since, func(r *Record) int64 { return r.Sent })
}

// replayAt decides each request at a time of the caller's choice, in the order of which records must be.
func replayAt(limit Limit, records []*Record, since int64, at func(*Record) int64) (admitted int64) {
	c := limit.newCounter()
	for _, r := range records {
		if r.Op != OpCheck || c.wait(at(r), r.Cost) != 0 {
			continue
		}
		if c.add(at(r), r.Cost); r.Sent >= since {
			admitted += r.Cost
		}
	}
	return admitted
}

// windows judges whole clock-aligned windows: those in the outage, and those after the window in which the store recovered.
func (o *outage) windows() {
	requested := map[int64]int64{}
	for _, r := range o.subjects[o.name] {
		if r.Op == OpCheck {
			requested[r.Sent-r.Sent%o.limit.Window] += r.Cost
		}
	}
	within, maximum := 0, int64(0)
	for start, n := range fixedWindows(o.limit, admissions(o.subjects[o.name])) {
		end := start + o.limit.Window
		switch {
		case start >= o.down && end <= o.up:
			within++
			maximum = max(maximum, n)
			o.least(n, min(o.limit.Count, requested[start]), "in a window of the outage")
			if maximum := o.limit.Count + int64(o.header.Nodes); n > maximum {
				o.find("%s: %s admitted %d in a window of the outage, at most %d", o.name, o.limit, n, maximum)
			}
		case start >= o.up+o.limit.Window:
			if n > o.limit.Count {
				o.find("%s: %s admitted %d in a window after the outage", o.name, o.limit, n)
			}
		}
	}
	if within == 0 {
		o.find("%s: %s: no whole window lies within the outage", o.name, o.limit)
	}
	o.figure("%s at most %d of %d in %d windows of the outage", o.name, maximum, o.limit.Count, within)
}
