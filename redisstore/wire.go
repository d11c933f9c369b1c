package redisstore

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/headgate/headgate"
)

// The numbers of lua/take.lua's header.
const (
	chargeSize = 59
	maxCharges = 255

	opNone          = 0
	opTokenBucket   = 1
	opLeakyBucket   = 2
	opFixedFirst    = 3
	opFixedClock    = 4
	opFixedCalendar = 5
	opSliding       = 6
	opLog           = 7

	kindObserve = 1
	kindRefund  = 2
	kindForce   = 3
	kindCredit  = 4

	verdictAdmitted = 1
	verdictBounds   = 2

	foundGivenBack = 2
	foundHolds     = 3

	replyHead = 9
	entrySize = 11
)

// encode is ARGV of the script: the charges, with calendar windows worked out for a guess of the store's time, and the
// spans of holds and of what was taken earlier, if there are any. keyOf[i] is the index of the key of charges[i].
func encode(charges []headgate.Charge, keyOf []int, guess time.Time) []string {
	b := make([]byte, 0, len(charges)*chargeSize)
	var spans []byte
	for i := range charges {
		c := &charges[i]
		t, valid := c.Terms(guess)
		op, p := opNone, [4]int64{}
		if valid {
			op, p = translate(c, &t)
		}
		if op == opLog {
			p[2] = asked(charges, i)
		}
		kind, twin := 0, 0
		least := t.Least
		switch {
		case c.Refund.Units > 0:
			kind, least = kindRefund, t.Mark
			if op == opTokenBucket || op == opLeakyBucket {
				p[0], p[3] = c.Refund.Time, c.Refund.Back
			}
		case c.Credit:
			kind = kindCredit
		case c.Release.Units > 0 || c.Force:
			kind, least = kindForce, t.Mark
		case c.Observe:
			kind, twin = kindObserve, firstOn(charges, c.Subject, c.Twin)+1
		}
		b = append(b, field(c.Counter)...)
		b = append(b, byte(keyOf[i]+1), byte(op), byte(kind), byte(twin), byte(firstOn(charges, c.Subject, c.Counter)+1))
		for _, n := range [...]int64{least, t.Most, p[0], p[1], p[2], p[3]} {
			b = appendNumber(b, n)
		}
		if span := t.Hold + t.Age; span > 0 { // no charge has both
			if spans == nil {
				spans = make([]byte, 8*len(charges))
			}
			binary.LittleEndian.PutUint64(spans[8*i:], math.Float64bits(float64(span)))
		}
	}
	if spans != nil {
		return []string{string(b), string(spans)}
	}
	return []string{string(b)}
}

// translate is the algorithm and its four parameters.
func translate(c *headgate.Charge, t *headgate.Terms) (op int, p [4]int64) {
	switch t.Algorithm {
	case headgate.TokenBucket:
		return opTokenBucket, [4]int64{t.Capacity * 1_000_000, t.P, t.Q}
	case headgate.LeakyBucket:
		return opLeakyBucket, [4]int64{t.Capacity, t.P, t.Q, t.MaxDelay}
	case headgate.FixedWindow:
		switch {
		case c.Limit.Calendar != headgate.NoCalendar:
			return opFixedCalendar, [4]int64{t.Capacity, t.Start, t.End}
		case t.Aligned:
			return opFixedClock, [4]int64{t.Capacity, t.Window, t.Offset}
		}
		return opFixedFirst, [4]int64{t.Capacity, t.Window}
	case headgate.SlidingWindow:
		return opSliding, [4]int64{t.Capacity, t.Window, t.Tick, t.PerWindow}
	default:
		return opLog, [4]int64{t.Capacity, t.Window}
	}
}

// asked is how many units all charges on the log of charges[i] ask for together: how much of the log their answers can
// depend on. 0 means all of it: for charges that are recorded whether they fit or not, and where the window is not the same
// for all.
func asked(charges []headgate.Charge, i int) int64 {
	var sum int64
	for j := range charges {
		c := &charges[j]
		switch {
		case c.Counter != charges[i].Counter || c.Subject != charges[i].Subject:
		case c.Refund.Units > 0 || c.Release.Units > 0 || c.Force || c.Credit || c.Limit.Window != charges[i].Limit.Window:
			return 0
		default:
			sum = min(sum+max(1, min(c.Cost, headgate.MaxCost)), headgate.MaxCost)
		}
	}
	return sum
}

// firstOn is the index of the first charge on a counter, or -1.
func firstOn(charges []headgate.Charge, s headgate.Subject, k headgate.Counter) int {
	for i := range charges {
		if charges[i].Counter == k && charges[i].Subject == s {
			return i
		}
	}
	return -1
}

var errReply = errors.New("a reply that this version cannot read: do nodes of another version share the namespace?")

// reply reads the script's answer from front to back.
type reply struct {
	rest   []byte
	broken bool
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

func (r *reply) byte() byte   { return r.bytes(1)[0] }
func (r *reply) length() int  { return int(binary.LittleEndian.Uint16(r.bytes(2))) }
func (r *reply) short() int64 { return int64(binary.LittleEndian.Uint32(r.bytes(4))) }

// number is of seven bytes.
func (r *reply) number() int64 {
	b := r.bytes(7)
	return int64(binary.LittleEndian.Uint32(b)) | int64(b[4])<<32 | int64(b[5])<<40 | int64(b[6])<<48
}

func (r *reply) time() time.Time {
	return time.UnixMicro(int64(math.Float64frombits(binary.LittleEndian.Uint64(r.bytes(8)))))
}

// states reads the states of the charges' counters, each at the first charge on it.
func (r *reply) states(charges []headgate.Charge, states []headgate.State) error {
	for i := range charges {
		c := &charges[i]
		states[i] = headgate.State{}
		if firstOn(charges, c.Subject, c.Counter) != i {
			continue
		}
		found := r.byte()
		if found == 0 {
			continue
		}
		length := 0
		if found == foundHolds {
			length = r.length()
		}
		before := len(r.rest)
		s := headgate.State{Time: r.number(), Used: r.number(), Expires: r.short()}
		entries := 0
		switch c.Limit.Algorithm {
		case headgate.TokenBucket:
			if found >= foundGivenBack {
				s.Prev = r.number()
			}
		case headgate.SlidingWindow:
			s.Prev = r.short()
		case headgate.SlidingLog:
			entries = r.length()
		}
		if found == foundHolds {
			entries = (length - (before - len(r.rest))) / entrySize
		}
		if entries > 0 {
			entries = min(entries, len(r.rest)/entrySize+1)
			s.Log = make([]headgate.LogEntry, entries)
			for j := range s.Log {
				s.Log[j] = headgate.LogEntry{Time: r.number(), Units: r.short()}
			}
		}
		states[i] = s
	}
	if r.broken || len(r.rest) > 0 {
		return errReply
	}
	return nil
}

// field is the name of a counter in its subject's hash: its 48 bits as they are.
func field(k headgate.Counter) []byte {
	return []byte{byte(k >> 40), byte(k >> 32), byte(k >> 24), byte(k >> 16), byte(k >> 8), byte(k)}
}

func appendNumber(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}
