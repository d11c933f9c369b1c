package headgate

import (
	"errors"
	"strconv"
)

// Cost is how many units a request takes: Default, or what the attribute From says.
type Cost struct {
	// From is an attribute with a whole number; a request without it, or with something else in it, costs Default.
	From string
	// Default 0 means 1.
	Default int64
	// Min and Max bound what From says; 0 means 1 and MaxCost.
	Min, Max int64
}

// bounds of what an attribute may say.
func (c *Cost) bounds() (least, most int64) {
	least, most = c.Min, c.Max
	if least == 0 {
		least = 1
	}
	if most == 0 {
		most = MaxCost
	}
	return least, most
}

// of is what a request costs.
func (c *Cost) of(req *Request) int64 {
	cost := max(c.Default, 1)
	if c.From != "" {
		// A number that is too large is the largest.
		if n, err := strconv.ParseInt(req.Attributes[c.From], 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
			least, most := c.bounds()
			cost = min(max(n, least), most)
		}
	}
	times := max(req.Cost, 1)
	if cost > MaxCost/times {
		return MaxCost
	}
	return cost * times
}

func (r *Rule) checkCost(bad func(string, ...any)) {
	c := r.Cost
	least, most := c.bounds()
	for _, n := range []int64{c.Default, c.Min, c.Max} {
		if n < 0 || n > MaxCost {
			bad("%d is out of bounds: write 1 to %d", n, MaxCost)
		}
	}
	if least > most {
		bad("its min of %d is above its max of %d", least, most)
	}
	if c.From == "" && (c.Min != 0 || c.Max != 0) {
		bad("min and max bound what an attribute says: add from, or write the number alone")
	}
	if c.From == "" {
		return
	}
	if text := checkAttribute(c.From); text != "" {
		bad("%s", text)
	}
}
