package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

var (
	kindNames = [kinds]string{
		"charge", "peek", "observe", "observe beside a twin", "force", "force with an age", "credit", "refund",
		"reserve", "commit", "commit with an age", "cancel",
	}
	costNames = [costs]string{"1", "3", "half", "all", "more than all", "the largest cost"}
	mixNames  = [holdMixes]string{"all alike", "evenly spread", "mostly short"}
	whenNames = [timings]string{
		"", "; made after the lapse", "; made when states expire", "; made after expired keys are deleted",
	}
)

// String describes the request in one line.
func (g genome) String() string {
	parts := make([]string, len(g.Blocks))
	for i := range g.Blocks {
		parts[i] = g.Blocks[i].String()
	}
	return strings.Join(parts, " + ") + whenNames[g.When]
}

func (b block) String() string {
	text := fmt.Sprintf("%d × [%s", b.Counters, b.Limit)
	if b.Limit.Algorithm == headgate.TokenBucket {
		text += ", token_bucket"
	}
	for _, fact := range []struct {
		is   bool
		text string
	}{
		{b.Used > 0, fmt.Sprintf("%d %% used", b.Used)},
		{b.Credited, "credited"},
		{b.Entries > 0, fmt.Sprintf("%d entries", b.Entries)},
		{b.Holds > 0, fmt.Sprintf("%d holds %s", b.Holds, mixNames[b.HoldMix])},
		{b.Lapsed > 0 && b.Entries+b.Holds > 0, fmt.Sprintf("%d %% of them lapsed", b.Lapsed)},
		{b.Others > 0 && b.OthersExpired, fmt.Sprintf("%d expired counters beside", b.Others)},
		{b.Others > 0 && !b.OthersExpired, fmt.Sprintf("%d counters beside", b.Others)},
	} {
		if fact.is {
			text += ", " + fact.text
		}
	}
	text += "]"
	switch {
	case b.Spread && b.Counters > 1:
		text += " on as many subjects"
	case b.Counters > 1:
		text += " on one subject"
	}
	charges := make([]string, len(b.Charges))
	for i, c := range b.Charges {
		charges[i] = c.String()
	}
	return text + ": " + strings.Join(charges, ", ")
}

func (c gene) String() string {
	text := kindNames[c.Kind]
	if c.Kind != peek && c.Kind != cancel {
		text += " of " + costNames[c.Cost]
	}
	if c.Partial && c.Kind <= observeTwin && c.Kind != peek {
		text += " or less"
	}
	switch c.Kind {
	case forceAged, refund, commit, commitAged, cancel:
		text += fmt.Sprintf(" at %d %%", c.Where)
	case reserve:
		text += " for " + c.Hold.String()
	}
	if c.Repeat > 1 {
		text = fmt.Sprintf("%d × (%s)", c.Repeat, text)
	}
	return text
}

// shape returns what kinds of counters and charges the request is made of, whatever their numbers.
func (g *genome) shape() string {
	var text strings.Builder
	seen := map[string]bool{}
	for i := range g.Blocks {
		b := &g.Blocks[i]
		for _, c := range b.Charges {
			part := fmt.Sprintf("%v %v; ", b.Limit.Algorithm, c.Kind)
			if !seen[part] {
				seen[part] = true
				text.WriteString(part)
			}
		}
	}
	return text.String()
}

// readable returns microseconds as a duration of three digits.
func readable(micros float64) string {
	if micros < 100 {
		return fmt.Sprintf("%.1f µs", micros)
	}
	if micros < 1000 {
		return fmt.Sprintf("%.0f µs", micros)
	}
	return fmt.Sprintf("%.2f ms", micros/1000)
}

// grouped returns a number below a million with its thousands set apart.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// clock returns the time since the start of a search.
func clock(since time.Duration) string { return fmt.Sprintf("%5.1f s", since.Seconds()) }
