package client

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
)

// maxNames keeps versions of rules that are gone from staying for ever.
const maxNames = 1_000

// errFailed is all that a server says of a limit that its store did not decide.
var errFailed = fmt.Errorf("%w: the server's store did not decide", headgate.ErrUnavailable)

// names are strings that come again with every answer, such as the rules' IDs. It is cheaper to find than to copy them.
type names map[string]string

func (n names) of(b []byte) string {
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

// decision reads a CheckResponse.
func (n names) decision(data []byte) (headgate.Decision, error) {
	var d headgate.Decision
	limits := 0
	err := fields(data, func(number protowire.Number, v uint64, b []byte) error {
		switch number {
		case 1:
			d.Allowed = v != 0
		case 2:
			d.RetryAfter = wait(v)
		case 3:
			d.Delay = span(v)
		case 4:
			d.Path = headgate.Path(n.of(b))
		case 5:
			d.Version = n.of(b)
		case 6:
			d.Time = time.UnixMicro(int64(v))
		case 7:
			limits++
		}
		return nil
	})
	if err != nil || limits == 0 {
		return d, err
	}
	d.Limits = make([]headgate.LimitDecision, 0, limits)
	return d, fields(data, func(number protowire.Number, _ uint64, b []byte) error {
		if number != 7 {
			return nil
		}
		d.Limits = append(d.Limits, headgate.LimitDecision{Result: headgate.Result{Time: d.Time}})
		return n.limit(&d.Limits[len(d.Limits)-1], b)
	})
}

// limit reads a LimitStatus. The result of a limit that was not decided is empty, as a store leaves it.
func (n names) limit(l *headgate.LimitDecision, data []byte) error {
	failed := false
	err := fields(data, func(number protowire.Number, v uint64, b []byte) error {
		switch number {
		case 1:
			l.Rule = n.of(b)
		case 2:
			l.Name = n.of(b)
		case 3:
			l.Allowed = v != 0
		case 4:
			l.Enforced = v != 0
		case 5:
			l.Exposed = v != 0
		case 6:
			l.Cost = int64(v)
		case 7:
			l.Remaining = int64(v)
		case 8:
			l.RetryAfter = wait(v)
		case 9:
			l.ResetAfter = span(v)
		case 10:
			l.Delay = span(v)
		case 11:
			l.Limit.Algorithm = headgate.Algorithm(v - 1) // 0 is not sent
		case 12:
			l.Limit.Count = int64(v)
		case 13:
			l.Limit.Window = span(v)
		case 14:
			l.Limit.Burst = int64(v)
		case 15:
			l.Origin = headgate.Origin(v - 1) // 0 is not sent
		case 16:
			l.Missing = n.of(b)
		case 17:
			failed = v != 0
		case 18:
			l.Granted = int64(v)
		}
		return nil
	})
	if failed {
		l.Result = headgate.Result{Allowed: l.Allowed, Err: errFailed}
	}
	return err
}

func span(us uint64) time.Duration { return time.Duration(us) * time.Microsecond }

// wait is a span, or never.
func wait(us uint64) time.Duration {
	if int64(us) < 0 {
		return headgate.Never
	}
	return span(us)
}
