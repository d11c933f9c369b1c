package headgate

import (
	"errors"
	"strconv"
)

// Cost is how many units a request takes: Default, or the number in the attribute From.
type Cost struct {
	// From is an attribute with a whole number. A request without it, or whose value is not a whole number, costs Default.
	From string
	// Default is the cost without From; 0 means 1.
	Default int64
	// Min and Max bound the number in From; 0 means 1 and MaxCost.
	Min, Max int64
}

// bounds returns the bounds of the number in From.
func (c *Cost) bounds() (lo, hi int64) {
	lo, hi = c.Min, c.Max
	if lo == 0 {
		lo = 1
	}
	if hi == 0 {
		hi = MaxCost
	}
	return lo, hi
}

// of returns the cost of a request.
func (c *Cost) of(req *Request) int64 {
	cost := max(c.Default, 1)
	if c.From != "" {
		// ParseInt returns the largest number if the value is out of range.
		if n, err := strconv.ParseInt(req.Attributes[c.From], 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
			lo, hi := c.bounds()
			cost = min(max(n, lo), hi)
		}
	}
	times := max(req.Cost, 1)
	if cost > MaxCost/times {
		return MaxCost
	}
	return cost * times
}

// checkCost checks the cost of a rule.
func (r *Rule) checkCost(bad func(string, ...any)) {
	c := r.Cost
	lo, hi := c.bounds()
	for _, n := range []int64{c.Default, c.Min, c.Max} {
		if n < 0 || n > MaxCost {
			bad("%d: must be 1 to %d", n, MaxCost)
		}
	}
	if lo > hi {
		bad("min %d: must be at most max %d", lo, hi)
	}
	if c.From == "" && (c.Min != 0 || c.Max != 0) {
		bad("min and max only apply to from: add from, or write only the number")
	}
	if c.From == "" {
		return
	}
	if text := checkAttribute(c.From); text != "" {
		bad("%s", text)
	}
}
