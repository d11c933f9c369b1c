package headgate

import "time"

// packedLimit is a valid limit in half the room, for keeping by the million.
type packedLimit struct {
	window       time.Duration
	zone         *time.Location
	count, burst uint32
	algorithm    Algorithm
	align        Align
	calendar     Calendar
	anchor       uint8
}

func pack(l Limit) packedLimit {
	return packedLimit{
		window: l.Window, zone: l.TimeZone, count: uint32(l.Count), burst: uint32(l.Burst),
		algorithm: l.Algorithm, align: l.Align, calendar: l.Calendar, anchor: uint8(l.AnchorDay),
	}
}

func (p packedLimit) limit() Limit {
	return Limit{
		Window: p.window, TimeZone: p.zone, Count: int64(p.count), Burst: int64(p.burst),
		Algorithm: p.algorithm, Align: p.align, Calendar: p.calendar, AnchorDay: int(p.anchor),
	}
}
