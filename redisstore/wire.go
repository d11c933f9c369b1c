package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/headgate/headgate"
)

// Constants of the format that lua/take.lua documents.
const (
	chargeSize = 59
	spanSize   = 16

	opNone          = 0
	opTokenBucket   = 1
	opLeakyBucket   = 2
	opFixedFirst    = 3
	opFixedClock    = 4
	opFixedCalendar = 5
	opSliding       = 6
	opLog           = 7
	opSlots         = 8
	opSlidingClock  = 9

	kindObserve = 1
	kindRefund  = 2
	kindForce   = 3
	kindCredit  = 4
	kindSet     = 5

	verdictAdmitted = 1
	verdictBounds   = 2

	foundNothing  = 0
	foundAlone    = 1 // the only state
	foundRefunded = 2
	foundMore     = 3

	replyHead = 9
	logSize   = 13 // bytes per log entry
	stateSize = 18 // bytes of a state that all algorithms have

	holderSize = 26 // bytes per holder
	endSize    = 12 // bytes per time at which holds end
	// endUnit is the unit of the end times of holds, a 64th of a second, in microseconds.
	endUnit = 15_625
)

// encode returns ARGV of the script: the charges, with calendar windows for a guess of the store's time, and, if there are
// any, the spans of holds and of units taken earlier. keyOf[i] is the index of the key of charges[i].
func encode(charges []headgate.Charge, keyOf []int, guess time.Time) []string {
	b := make([]byte, 0, len(charges)*chargeSize)
	var spans []byte
	logs := false
	for i := range charges {
		c := &charges[i]
		t, valid := c.Terms(guess)
		op, p := opNone, [4]int64{}
		if valid {
			op, p = translate(c, &t)
		}
		kind, twin := 0, 0
		least := t.MinUnits
		switch {
		case op == opSlots:
			kind = slotKind(c, &t)
			if kind == kindObserve {
				twin = headgate.IndexCharge(charges, c.Subject, c.Twin) + 1
			}
		case c.Refund.Units > 0:
			kind, least = kindRefund, t.Mark
			if op == opTokenBucket || op == opLeakyBucket {
				p[0], p[3] = c.Refund.Time, c.Refund.Back
			}
		case c.Credit:
			kind, least = kindCredit, t.Within
		case c.Release.Units > 0 || c.Force:
			kind, least = kindForce, t.Mark
		case c.Observe:
			kind, twin = kindObserve, headgate.IndexCharge(charges, c.Subject, c.Twin)+1
		}
		b = append(b, field(c.Counter)...)
		b = append(b, byte(keyOf[i]+1), byte(op), byte(kind), byte(twin), byte(headgate.IndexCharge(charges, c.Subject, c.Counter)+1))
		for _, n := range [...]int64{least, t.MaxUnits, p[0], p[1], p[2], p[3]} {
			b = appendNumber(b, n)
		}
		if op == opSlots {
			binary.LittleEndian.PutUint64(b[len(b)-8:], t.Holder)
		}
		// At most one term of each sum is not 0.
		if span, tick := t.Hold+t.Age, t.HoldTick+t.HoldEnd+t.Own; span > 0 || tick > 0 || op == opLog {
			if spans == nil {
				spans = make([]byte, spanSize*len(charges))
			}
			logs = logs || op == opLog
			putNumber(spans[spanSize*i:], span)
			putNumber(spans[spanSize*i+8:], tick)
		}
	}
	switch {
	case logs:
		return []string{string(b), string(spans), "l"}
	case spans != nil:
		return []string{string(b), string(spans)}
	}
	return []string{string(b)}
}

// translate returns the script's number of the algorithm, and its four parameters.
func translate(c *headgate.Charge, t *headgate.Terms) (op int, p [4]int64) {
	switch t.Algorithm {
	case headgate.TokenBucket:
		return opTokenBucket, [4]int64{t.Capacity * 1_000_000, t.P, t.Q, t.Absent}
	case headgate.LeakyBucket:
		return opLeakyBucket, [4]int64{t.Capacity, t.P, t.Q, t.MaxDelay}
	case headgate.FixedWindow:
		switch {
		case c.Limit.Calendar != headgate.NoCalendar:
			return opFixedCalendar, [4]int64{t.Capacity, t.Start, t.End, t.Absent}
		case t.Aligned:
			return opFixedClock, [4]int64{t.Capacity, t.Window, t.Offset, t.Absent}
		}
		return opFixedFirst, [4]int64{t.Capacity, t.Window}
	case headgate.SlidingWindow:
		if t.Aligned {
			return opSlidingClock, [4]int64{t.Capacity, t.Window, t.Offset, t.Absent}
		}
		return opSliding, [4]int64{t.Capacity, t.Window, t.Tick, t.PerWindow}
	case headgate.Concurrency:
		return opSlots, [4]int64{t.Capacity, t.Window, t.Seq}
	default:
		return opLog, [4]int64{t.Capacity, t.Window}
	}
}

// slotKind returns the script's number of an operation on a concurrency limit.
func slotKind(c *headgate.Charge, t *headgate.Terms) int {
	switch {
	case t.Slots == headgate.ReleaseSlots:
		return kindRefund
	case t.Slots == headgate.SetSlots:
		return kindSet
	case c.Force:
		return kindForce
	case c.Observe:
		return kindObserve
	}
	return 0
}

var errReply = errors.New("cannot read the script's reply: check whether nodes of another version share the namespace")

// reply reads the script's reply from front to back.
type reply struct {
	rest   []byte
	broken bool // the reply was too short
}

func (r *reply) bytes(n int) []byte {
	if len(r.rest) < n {
		r.broken = true
		r.rest = make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reply) byte() byte { return r.bytes(1)[0] }

// number reads a little-endian number of size bytes.
func (r *reply) number(size int) (n int64) {
	for i, b := range r.bytes(size) {
		n |= int64(b) << (8 * i)
	}
	return n
}

func (r *reply) time() time.Time {
	return time.UnixMicro(int64(math.Float64frombits(binary.LittleEndian.Uint64(r.bytes(8)))))
}

// states reads the states of the charges' counters, each at the first charge on its counter, and the holds that charges
// release.
func (r *reply) states(charges []headgate.Charge, states []headgate.State) error {
	clear(states)
	logs := false
	for i := range charges {
		switch c := &charges[i]; {
		case headgate.IndexCharge(charges, c.Subject, c.Counter) != i:
		case isLog(c):
			logs = true
		case isSlots(c):
			r.slots(&states[i])
		default:
			r.state(&states[i], c.Limit.Algorithm)
		}
	}
	for i := range charges {
		if c := &charges[i]; logs && isLog(c) && headgate.IndexCharge(charges, c.Subject, c.Counter) == i {
			r.log(&states[i])
		}
	}
	for i := range charges {
		c := &charges[i]
		if c.Release.Units > 0 && c.Refund.Units == 0 && !isSlots(c) && r.byte() > 0 {
			r.number(4) // when it expires
			states[i].Hold.End = r.number(5) * endUnit
			states[i].Hold.Units = r.number(4)
		}
	}
	if r.broken || len(r.rest) > 0 {
		return errReply
	}
	return nil
}

// isLog reports whether the charge is on a valid sliding log.
func isLog(c *headgate.Charge) bool {
	return c.Limit.Algorithm == headgate.SlidingLog && c.Limit.Validate() == nil
}

// isSlots reports whether the charge is on a valid concurrency limit.
func isSlots(c *headgate.Charge) bool {
	return c.Limit.Algorithm == headgate.Concurrency && c.Limit.Validate() == nil
}

// state reads the state of a counter other than a log or a concurrency limit.
func (r *reply) state(s *headgate.State, a headgate.Algorithm) {
	found := r.byte()
	if found == foundNothing {
		return
	}
	rest := 0 // bytes of the reply after this state
	if found == foundMore {
		length := int(r.number(2))
		rest = len(r.rest) - length
	}
	s.Expires, s.Time, s.Used = r.number(4), r.number(7), r.number(7)
	switch {
	case a == headgate.SlidingWindow:
		s.Prev = r.number(4)
	case a == headgate.TokenBucket && found == foundRefunded:
		s.Prev = r.number(7)
	case a == headgate.TokenBucket && found == foundMore:
		s.Prev, s.Credited = r.number(7), r.number(7)
	}
	if found != foundMore || len(r.rest) == rest {
		return
	}
	s.LastHold = r.number(7)
	r.number(7) // total units and number of holds
	for len(r.rest) >= rest+endSize {
		s.Log = append(s.Log, headgate.LogEntry{Time: r.number(5) * endUnit, Units: uint32(r.number(4)), Count: uint32(r.number(3))})
	}
	r.broken = r.broken || len(r.rest) != rest
}

// log reads the state of a sliding log.
func (r *reply) log(s *headgate.State) {
	if r.byte() == foundNothing {
		return
	}
	s.Expires, s.Time, s.Used = r.number(4), r.number(7), r.number(7)
	s.Log = make([]headgate.LogEntry, r.count(logSize))
	for i := range s.Log {
		s.Log[i] = headgate.LogEntry{Time: r.number(7), Units: uint32(r.number(4)), Count: uint32(r.number(2))}
	}
}

// slots reads the state of a concurrency limit: all holders, or those that charges name and the number of the others.
func (r *reply) slots(s *headgate.State) {
	var named int
	switch r.byte() {
	case foundNothing:
		return
	case foundAlone:
		named = (len(r.rest) - stateSize) / holderSize
		s.Expires, s.Time, s.Used = r.number(4), r.number(7), r.number(7)
	case foundMore:
		named = (int(r.number(2)) - stateSize) / holderSize
		s.Expires, s.Time, s.Used = r.number(4), r.number(7), r.number(7)
	default:
		s.Expires, s.Time, s.Used = r.number(4), r.number(7), r.number(7)
		s.OtherHolders, named = int32(r.number(2)), int(r.byte())
	}
	if named*holderSize > len(r.rest) {
		r.broken = true
		return
	}
	s.Holders = make([]headgate.SlotHolder, max(0, named))
	for i := range s.Holders {
		s.Holders[i] = headgate.SlotHolder{ID: uint64(r.number(8)), Until: r.number(7), Units: r.number(4), Seq: r.number(7)}
	}
}

// count reads the number of records that follow, each of a size.
func (r *reply) count(size int) int {
	n := int(r.number(2))
	if n*size > len(r.rest) {
		r.broken = true
		return 0
	}
	return n
}

// field returns the name of a counter in its subject's hash: its 48 bits, big endian.
func field(k headgate.Counter) []byte {
	return []byte{byte(k >> 40), byte(k >> 32), byte(k >> 24), byte(k >> 16), byte(k >> 8), byte(k)}
}

func appendNumber(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}

func putNumber(b []byte, n int64) { binary.LittleEndian.PutUint64(b, math.Float64bits(float64(n))) }
