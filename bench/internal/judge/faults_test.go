package judge

import (
	"slices"
	"testing"
)

func event(note string, at int64) Record {
	return Record{Op: OpEvent, Note: note, Subject: "s", Sent: begin + at, Received: begin + at}
}

// peek returns the record of a peek at the store's count.
func peek(limit Limit, at, used int64) Record {
	return Record{
		Op: OpPeek, Subject: "s", Sent: begin + at, Received: begin + at, Store: begin + at, Path: "store",
		Remaining: limit.Capacity() - used,
	}
}

func TestBalance(t *testing.T) {
	limit := Limit{Algorithm: FixedWindow, Count: 100_000, Window: 3600 * second}
	c := Check{Kind: KindBalance, Allowance: 0.001}
	records := steady(limit, 1000, 2*second) // 2,000 units
	expectPass(t, verdict(c, append(records, peek(limit, 3*second, 2002)), limit))
	expectFinding(t, verdict(c, append(records, peek(limit, 3*second, 2003)), limit), "3 units lost")
	expectFinding(t, verdict(c, append(records, peek(limit, 3*second, 1990)), limit), "10 units never charged")
	expectFinding(t, verdict(c, records, limit), "no peek")
	unanswered := records[5]
	unanswered.Path, unanswered.Allowed, unanswered.Received = "local", false, unanswered.Sent+10_000
	expectPass(t, verdict(c, append(records, unanswered, peek(limit, 3*second, 2003)), limit))
}

func TestCommits(t *testing.T) {
	limit := Limit{Algorithm: FixedWindow, Count: 100, Window: 3600 * second}
	c := Check{Kind: KindCommits}
	settle := func(op, token string, at, cost int64) Record {
		return Record{Op: op, Token: token, Subject: "s", Sent: begin + at, Received: begin + at + 1, Cost: cost, Allowed: true}
	}
	records := []Record{
		settle(OpReserve, "a", 1, 10), settle(OpCommit, "a", 5, 7), settle(OpCommit, "a", 10, 7), settle(OpCancel, "a", 20, 0),
		settle(OpReserve, "b", 2, 10), settle(OpCancel, "b", 6, 0), settle(OpCommit, "b", 9, 3),
	}
	expectPass(t, verdict(c, append(records, peek(limit, 100, 7)), limit))
	expectFinding(t, verdict(c, append(records, peek(limit, 100, 14)), limit), "committed 7, counted 14")
	expectFinding(t, verdict(c, append(records, peek(limit, 100, 0)), limit), "committed 7, counted 0")
}

func TestLosses(t *testing.T) {
	limit := Limit{Algorithm: FixedWindow, Count: 400, Window: second, Clock: true}
	c := Check{Kind: KindLosses, Allowance: 0.05}
	records := steady(limit, 1000, 4*second)
	expectPass(t, verdict(c, records, limit))
	lost := 0
	for i := range records { // 10 units of the third window
		if records[i].Store >= begin+2*second && records[i].Allowed && lost < 10 {
			records[i].Allowed = false
			lost++
		}
	}
	expectFinding(t, verdict(c, records, limit), "10 units lost")
	expectPass(t, verdict(c, append(records, event(NoteKill, 2*second+5), event(NoteStop, 2*second+6)), limit))
	expectFinding(t, verdict(c, append(records, event(NoteKill, second+5)), limit), "10 units lost")
	expectFinding(t, verdict(c, records[:100], limit), "no whole window")
}

func TestOutage(t *testing.T) {
	bucket := Limit{Algorithm: TokenBucket, Count: 100, Window: 10 * second}
	c := Check{Kind: KindOutage, Least: 0.6}
	down, up := event(NoteDown, -1000), event(NoteUp, 5*second)
	fair := steady(bucket, 10_000, 5*second-second/10)
	expectPass(t, verdict(c, append(fair, down, up), bucket))
	expectFinding(t, verdict(c, fair, bucket), "no outage")
	none := steady(bucket, 10_000, 4*second)
	for i := range none {
		none[i].Allowed, none[i].RetryAfter = false, -1
	}
	v := verdict(c, append(none, down, up), bucket)
	expectFinding(t, v, "admitted 0 of 1")
	expectFinding(t, v, "denials without a wait")
	all := steady(bucket, 10_000, 4*second)
	for i := range all {
		all[i].Allowed = true
	}
	expectFinding(t, verdict(c, append(all, down, up), bucket), "in the outage, at most 1")
}

func TestOutageWindows(t *testing.T) {
	fixed := Limit{Algorithm: FixedWindow, Count: 200, Window: 2 * second, Clock: true}
	c := Check{Kind: KindOutage, Least: 0.6}
	down, up := event(NoteDown, second), event(NoteUp, 7*second)
	fair := steady(fixed, 5_000, 14*second)
	expectPass(t, verdict(c, append(fair, down, up), fixed))
	for _, at := range []int64{4, 12} {
		over := append(steady(fixed, 5_000, 14*second), down, up)
		for i := range over {
			if over[i].Store >= begin+at*second && over[i].Store < begin+(at+2)*second {
				over[i].Allowed = true
			}
		}
		expectFinding(t, verdict(c, over, fixed), "admitted 400 in a window")
	}
	expectFinding(t, verdict(c, append(fair, down, event(NoteUp, 2*second)), fixed), "no whole window")
}

func TestChange(t *testing.T) {
	before := Limit{Algorithm: FixedWindow, Count: 1000, Window: 3600 * second}
	after := before
	after.Count = 300
	changed := event(NoteChanged, 400_000)
	changed.Limit = 1
	records := steady(before, 2000, 400_000) // 200
	c := Check{Kind: KindChange, Least: 0.99}
	for i := range int64(400) {
		records = append(records, check("s", begin+500_000+i, 1, i < 100, 0))
	}
	expectPass(t, verdict(c, append(records, changed), before, after))
	expectFinding(t, verdict(c, records, before, after), "was not changed")
	over := slices.Concat(records, []Record{changed, check("s", begin+600_000, 1, true, 0)})
	expectFinding(t, verdict(c, over, before, after), "101 more were admitted, at most 100")
	for i := range records {
		records[i].Allowed = records[i].Allowed && i < 250
	}
	expectFinding(t, verdict(c, append(records, changed), before, after), "admitted 250 in total, at least 297")
}

func TestReset(t *testing.T) {
	limit := Limit{Algorithm: FixedWindow, Count: 100, Window: 3600 * second}
	c := Check{Kind: KindReset, Least: 0.99}
	records := steady(limit, 1000, 60_000) // 60
	for i := range int64(200) {
		records = append(records, check("s", begin+200_000+i, 1, i < 100, 0))
	}
	reset := event(NoteReset, 100_000)
	expectPass(t, verdict(c, append(records, reset), limit))
	expectFinding(t, verdict(c, records, limit), "was not reset")
	expectFinding(t, verdict(c, append(records, reset, check("s", begin+300_000, 1, true, 0)), limit), "101 admitted after a reset")
	records[60].Allowed, records[61].Allowed = false, false
	expectFinding(t, verdict(c, append(records, reset), limit), "98 admitted during and after a reset, at least")
}
