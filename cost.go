package headgate

import (
	"errors"
	"strconv"
)

// Cost is how many units a request takes: Default, unless the caller's number replaces it.
type Cost struct {
	// From is an attribute with a whole number that replaces the cost. A request without it, or whose value is not a whole number,
	// costs what Rule.Costs and Default say.
	From string
	// Default is the cost of a request that no entry of Rule.Costs matches; 0 means 1.
	Default int64
	// Min and Max bound the number in From; 0 means 1 and MaxCost. Without From, Max lets the caller's Request.Cost replace the
	// rule's cost, within these bounds, instead of multiplying it.
	Min, Max int64
}

// CostEntry is an entry of the cost table of a rule.
type CostEntry struct {
	// Match selects the requests that the entry is for, in addition to Rule.Match.
	Match Match
	// Cost is how many units they take, at least 1.
	Cost int64
}

// compiledCost is a validated CostEntry.
type compiledCost struct {
	conditions []condition
	cost       int64
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

// clamp returns a caller's cost within the bounds.
func (c *Cost) clamp(n int64) int64 {
	lo, hi := c.bounds()
	return min(max(n, lo), hi)
}

// of returns the cost of a request whose cost by the rule is base.
func (c *Cost) of(req *Request, base int64) int64 {
	cost, times := base, max(req.Cost, 1)
	switch {
	case c.From != "":
		// ParseInt returns the largest number if the value is out of range.
		if n, err := strconv.ParseInt(req.Attributes[c.From], 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
			cost = c.clamp(n)
		}
	case c.Max > 0 && req.Cost > 0:
		return c.clamp(req.Cost)
	}
	if cost > MaxCost/times {
		return MaxCost
	}
	return cost * times
}

// scale returns how many units one more of the caller's number costs: of the attribute, or of Request.Cost if the caller gives one. It
// returns 0 if the cost does not depend on it.
func (c *Cost) scale(unit, requestCost int64) int64 {
	switch {
	case c.From != "":
		return max(1, requestCost)
	case requestCost > 0 && c.Max > 0:
		return 1
	case requestCost > 0:
		return max(1, unit)
	}
	return 0
}

// base returns the cost of a request that no entry of the cost table matches.
func (c *Cost) base() int64 { return max(c.Default, 1) }

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
	if c.From == "" && c.Min != 0 && c.Max == 0 {
		bad("min only applies to from or max: add one of them, or write only the number")
	}
	if c.From == "" {
		return
	}
	if text := checkAttribute(c.From); text != "" {
		bad("%s", text)
	}
}
