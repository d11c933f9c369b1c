package client

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/protofields"
)

// maxNames caps the interned names, so that names of removed rules do not accumulate.
const maxNames = 1_000

// errFailed is the error of a limit that the server's store did not decide. The server does not send details.
var errFailed = fmt.Errorf("%w: the server's store did not decide", headgate.ErrUnavailable)

// names interns strings that recur in every response, such as rule IDs: a lookup is cheaper than a copy.
type names map[string]string

// intern returns b as a string.
func (n names) intern(b []byte) string {
	if name, ok := n[string(b)]; ok {
		return name
	}
	if len(n) >= maxNames {
		clear(n)
	}
	name := string(b)
	n[name] = name
	return name
}

// decision decodes a CheckResponse.
func (n names) decision(data []byte) (headgate.Decision, error) {
	var d headgate.Decision
	limits := 0
	r := protofields.Reader{Rest: data}
	for r.Next() {
		switch r.Tag {
		case 1 << 3:
			d.Allowed = r.Value != 0
		case 2 << 3:
			d.RetryAfter = wait(r.Value)
		case 3 << 3:
			d.Delay = duration(r.Value)
		case 4<<3 | protofields.Bytes:
			d.Path = headgate.Path(n.intern(r.Bytes))
		case 5<<3 | protofields.Bytes:
			d.Version = n.intern(r.Bytes)
		case 6 << 3:
			d.Time = time.UnixMicro(int64(r.Value))
		case 7<<3 | protofields.Bytes:
			limits++
		case 13<<3 | protofields.Bytes:
			d.Skipped = append(d.Skipped, n.intern(r.Bytes))
		}
	}
	if r.Err != nil || limits == 0 {
		return d, r.Err
	}
	d.Limits = make([]headgate.LimitDecision, 0, limits)
	for r = (protofields.Reader{Rest: data}); r.Next(); {
		if r.Tag != 7<<3|protofields.Bytes {
			continue
		}
		d.Limits = append(d.Limits, headgate.LimitDecision{Result: headgate.Result{Time: d.Time}})
		if err := n.limit(&d.Limits[len(d.Limits)-1], r.Bytes); err != nil {
			return d, err
		}
	}
	return d, nil
}

// limit decodes a LimitStatus. The result of a limit that was not decided is empty, like that of a store.
func (n names) limit(l *headgate.LimitDecision, data []byte) error {
	failed := false
	r := protofields.Reader{Rest: data}
	for r.Next() {
		switch v := r.Value; r.Tag {
		case 1<<3 | protofields.Bytes:
			l.Rule = n.intern(r.Bytes)
		case 2<<3 | protofields.Bytes:
			l.Name = n.intern(r.Bytes)
		case 3 << 3:
			l.Allowed = v != 0
		case 4 << 3:
			l.Enforced = v != 0
		case 5 << 3:
			l.Exposed = v != 0
		case 6 << 3:
			l.Cost = int64(v)
		case 7 << 3:
			l.Remaining = int64(v)
		case 8 << 3:
			l.RetryAfter = wait(v)
		case 9 << 3:
			l.ResetAfter = duration(v)
		case 10 << 3:
			l.Delay = duration(v)
		case 11 << 3:
			l.Limit.Algorithm = headgate.Algorithm(v - 1) // 0 is not sent
		case 12 << 3:
			l.Limit.Count = int64(v)
		case 13 << 3:
			l.Limit.Window = duration(v)
		case 14 << 3:
			l.Limit.Burst = int64(v)
		case 15 << 3:
			l.Origin = headgate.Origin(v - 1) // 0 is not sent
		case 16<<3 | protofields.Bytes:
			l.Missing = n.intern(r.Bytes)
		case 17 << 3:
			failed = v != 0
		case 18 << 3:
			l.Granted = int64(v)
		}
	}
	if failed {
		l.Result = headgate.Result{Allowed: l.Allowed, Err: errFailed}
	}
	return r.Err
}

func duration(us uint64) time.Duration { return time.Duration(us) * time.Microsecond }

// wait returns a duration, headgate.Unknown for -2, or headgate.Never for another negative number.
func wait(us uint64) time.Duration {
	switch n := int64(us); {
	case n == -2:
		return headgate.Unknown
	case n < 0:
		return headgate.Never
	}
	return duration(us)
}
