package judge

import "testing"

// inFlight returns the record of a request that a backend served from one time to another, in milliseconds.
func inFlight(node int, cost, from, to int64, path string) Record {
	return Record{
		Op: OpUse, Process: node, Subject: "s", Cost: cost, Sent: begin + from*1000, Received: begin + to*1000, Decided: begin + from*1000 - 10,
		Path: path, Allowed: true,
	}
}

// eventAt returns an event from one time to another, in milliseconds.
func eventAt(note string, node int, from, to int64) Record {
	return Record{Op: OpEvent, Note: note, Process: node, Sent: begin + from*1000, Received: begin + to*1000}
}

func TestSlots(t *testing.T) {
	limit := Limit{Algorithm: Concurrency, Count: 5, Window: 3 * second}
	unused := Record{Op: OpPeek, Subject: "s", Sent: begin + 100*second, Received: begin + 100*second, Remaining: 5}
	leaked := unused
	leaked.Remaining = 4
	const over, localOver = "6 units in flight", "6 admitted without the store"
	for name, test := range map[string]struct {
		records []Record
		finding string // "" means none
	}{
		"at the limit":           {records: []Record{inFlight(0, 3, 0, 10, "store"), inFlight(1, 2, 5, 10, "lease"), inFlight(0, 5, 10, 20, "store")}},
		"over the limit":         {[]Record{inFlight(0, 3, 0, 10, "store"), inFlight(1, 3, 9, 20, "lease")}, over},
		"never at the limit":     {[]Record{inFlight(0, 3, 0, 10, "store")}, "no limit was used up"},
		"shares in addition":     {records: []Record{inFlight(0, 5, 0, 10, "store"), inFlight(1, 5, 5, 10, "local")}},
		"shares over the limit":  {[]Record{inFlight(0, 5, 0, 10, "store"), inFlight(1, 5, 5, 10, "local"), inFlight(0, 1, 6, 10, "local")}, localOver},
		"units in use":           {[]Record{inFlight(0, 5, 0, 10, "store"), leaked}, "1 units in use at the end"},
		"dead for half a lease":  {records: []Record{inFlight(0, 5, 0, 4000, "store"), eventAt(NoteKill, 0, 100, 101), inFlight(1, 5, 1601, 4000, "store")}},
		"dead for less":          {[]Record{inFlight(0, 5, 0, 4000, "store"), eventAt(NoteKill, 0, 100, 101), inFlight(1, 1, 1599, 4000, "store")}, over},
		"another is dead":        {[]Record{inFlight(0, 5, 0, 4000, "store"), eventAt(NoteKill, 2, 100, 101), inFlight(1, 1, 1601, 4000, "store")}, over},
		"paused for a lease":     {records: []Record{inFlight(0, 5, 0, 4000, "store"), eventAt(NoteStop, 0, 100, 3100), inFlight(1, 5, 3200, 4000, "store")}},
		"paused for less":        {[]Record{inFlight(0, 5, 0, 4000, "store"), eventAt(NoteStop, 0, 100, 1500), inFlight(1, 1, 3200, 4000, "store")}, over},
		"after a pause":          {[]Record{eventAt(NoteStop, 0, 100, 3100), inFlight(0, 5, 3200, 4000, "store"), inFlight(1, 1, 3300, 4000, "store")}, over},
		"after a flush":          {records: []Record{inFlight(0, 5, 0, 9000, "store"), eventAt(NoteFlush, 0, 100, 101), inFlight(1, 5, 2000, 9000, "store")}},
		"twice after a flush":    {[]Record{inFlight(0, 5, 0, 9000, "store"), eventAt(NoteFlush, 0, 100, 101), inFlight(1, 5, 1000, 9000, "store"), inFlight(1, 1, 2000, 9000, "store")}, "11 units in flight"},
		"long after a flush":     {[]Record{inFlight(0, 5, 0, 9000, "store"), eventAt(NoteFlush, 0, 100, 101), inFlight(1, 1, 2200, 9000, "store")}, over},
		"dead during a flush":    {records: []Record{inFlight(0, 5, 0, 4000, "store"), eventAt(NoteKill, 0, 100, 101), eventAt(NoteFlush, 0, 200, 201), inFlight(1, 5, 300, 4000, "store"), inFlight(2, 5, 400, 4000, "store")}},
		"store paused":           {records: []Record{inFlight(0, 5, 0, 9000, "store"), eventAt(NoteStall, 0, 100, 1700), inFlight(1, 5, 1800, 9000, "store")}},
		"store paused for less":  {[]Record{inFlight(0, 5, 0, 9000, "store"), eventAt(NoteStall, 0, 100, 1500), inFlight(1, 1, 1800, 9000, "store")}, over},
		"nothing in the backend": {nil, "no limit was used up"},
	} {
		t.Run(name, func(t *testing.T) {
			records := append([]Record{unused}, test.records...)
			if v := verdict(Check{Kind: KindSlots}, records, limit); test.finding == "" {
				expectPass(t, v)
			} else {
				expectFinding(t, v, test.finding)
			}
		})
	}
	expectFinding(t, verdict(Check{Kind: KindSlots}, []Record{inFlight(0, 5, 0, 10, "store")}, limit), "the final count is unknown")
}
