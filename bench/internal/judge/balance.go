package judge

// waited is how long a request must have taken, in microseconds, to count as one that the store received and did not answer.
const waited = 5_000

// judgeBalance compares the final count with the units admitted. A request that the store did not answer may or may not have
// been counted, and is reported separately.
func judgeBalance(t *trial) {
	var allAdmitted, allCounted, allUnanswered int64
	for _, name := range t.names() {
		records := t.subjects[name]
		counted, ok := t.counted(name)
		if !ok {
			continue
		}
		var admitted, unansweredAllowed, unansweredDenied int64
		for _, r := range records {
			if r.Op != OpCheck || r.Error != "" {
				continue
			}
			unanswered := r.Path != "store" && r.Path != "lease" && r.Path != "cache" && r.Received-r.Sent >= waited
			switch {
			case r.Allowed:
				admitted += r.Cost
				if unanswered {
					unansweredAllowed += r.Cost
				}
			case unanswered:
				unansweredDenied += r.Cost
			}
		}
		allowed := t.check.Allowance * float64(admitted)
		lost := counted - admitted - unansweredDenied
		if float64(lost) > allowed {
			t.find("%s: counted %d, admitted %d: %d units lost (%.2f %%), at most %.2f %%", name, counted, admitted, lost,
				100*float64(lost)/float64(max(1, admitted)), 100*t.check.Allowance)
		}
		if missing := admitted - counted - unansweredAllowed; float64(missing) > allowed {
			t.find("%s: counted %d, admitted %d: %d units never charged (%d unanswered)", name, counted, admitted, missing,
				unansweredAllowed)
		}
		allAdmitted += admitted
		allCounted += counted
		allUnanswered += unansweredAllowed + unansweredDenied
	}
	t.figure("%s: admitted %d, counted %d (%+.3f %%), %d unanswered", t.label(), allAdmitted, allCounted,
		100*float64(allCounted-allAdmitted)/float64(max(1, allAdmitted)), allUnanswered)
}

// counted returns the units that the counter of a subject has recorded, by the last peek that the store answered.
func (t *trial) counted(name string) (used int64, ok bool) {
	for _, r := range t.subjects[name] {
		if r.Op == OpPeek && r.Path == "store" {
			used, ok = t.header.Limits[r.Limit].Capacity()-r.Remaining, true
		}
	}
	if !ok {
		t.find("%s: no peek at the store's count", name)
	}
	return used, ok
}

// judgeCommits compares the final count with the sum of the commits. If several commits settle one reservation, only the
// first counts.
func judgeCommits(t *trial) {
	for _, name := range t.names() {
		limit, records, tokens := t.limit(name), t.subjects[name], map[string]bool{}
		var committed, reserved, repeated int64
		for _, r := range records {
			switch {
			case r.Op == OpReserve && r.Allowed:
				reserved++
			case r.Op != OpCommit && r.Op != OpCancel || r.Error != "":
			case tokens[r.Token]:
				repeated++
			default:
				tokens[r.Token] = true
				if r.Op == OpCommit {
					committed += r.Cost
				}
			}
		}
		counted, ok := t.counted(name)
		if !ok {
			continue
		}
		leaked := int64(0)
		if limit.Algorithm == TokenBucket {
			leaked = (records[len(records)-1].Received-records[0].Sent)*limit.Count/limit.Window + 1
		}
		if counted > committed || counted < committed-leaked {
			t.find("%s: %s: committed %d, counted %d", name, limit, committed, counted)
		}
		t.figure("%s: %d reserved, %d settled again, committed %d, counted %d", name, reserved, repeated, committed, counted)
	}
}
