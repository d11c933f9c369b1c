package ruledoc

import (
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// countSchema is of what is counted.
var countSchema = fmt.Sprintf(`"maximum": %d`, headgate.MaxCost)

var costKeys = objectOf(
	textField("from", "an attribute with a whole number: `header.x-rows`", func(c *headgate.Cost) *string { return &c.From }).
		with(`"$ref": "#/$defs/attribute"`),
	wholeField("default", "the cost if there is no such number", 1, "", func(c *headgate.Cost) *int64 { return &c.Default }).
		with(countSchema+`, "default": 1`).or("`1`"),
	wholeField("min", "the least that the attribute may say", 1, "", func(c *headgate.Cost) *int64 { return &c.Min }).
		with(countSchema+`, "default": 1`).or("`1`"),
	wholeField("max", "the most that the attribute may say", 1, "", func(c *headgate.Cost) *int64 { return &c.Max }).
		with(fmt.Sprintf(`%s, "default": %d`, countSchema, headgate.MaxCost)).or(fmt.Sprintf("`%d`", headgate.MaxCost)),
)

func (d *decoder) cost(n *node, key string) headgate.Cost {
	var c headgate.Cost
	switch n.Kind {
	case yamldoc.Number:
		c.Default = d.Int(n, key, 1, "a request costs 1 or more; to let some pass uncounted use match or an exemption")
	case yamldoc.Mapping:
		costKeys.read(d, n, key, &c)
	default:
		d.Bad(n, "%s wants a number or {from: header.x-rows, default: 1, max: 10000}, not %s", key, n.Describe())
	}
	return c
}

func (e *encoder) cost(what string, c headgate.Cost) *node {
	if c.From == "" {
		return number(c.Default)
	}
	return costKeys.write(e, what, &c)
}
