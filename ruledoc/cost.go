package ruledoc

import (
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// countSchema is the upper bound of a count in the schema.
var countSchema = fmt.Sprintf(`"maximum": %d`, headgate.MaxCost)

var costKeys = newObject(
	textField("from", "attribute that holds the cost as a whole number: `header.x-rows`", func(c *headgate.Cost) *string { return &c.From }).
		withSchema(`"$ref": "#/$defs/attribute"`),
	intField("default", "cost if the attribute is absent or not a whole number", 1, "", func(c *headgate.Cost) *int64 { return &c.Default }).
		withSchema(countSchema+`, "default": 1`).withDefault("`1`"),
	intField("min", "lower bound: a smaller cost in the attribute is raised to it", 1, "", func(c *headgate.Cost) *int64 { return &c.Min }).
		withSchema(countSchema+`, "default": 1`).withDefault("`1`"),
	intField("max", "upper bound: a larger cost in the attribute is reduced to it", 1, "", func(c *headgate.Cost) *int64 { return &c.Max }).
		withSchema(fmt.Sprintf(`%s, "default": %d`, countSchema, headgate.MaxCost)).withDefault(fmt.Sprintf("`%d`", headgate.MaxCost)),
)

func (d *decoder) cost(n *node, key string) headgate.Cost {
	var c headgate.Cost
	switch n.Kind {
	case yamldoc.Number:
		c.Default = d.Int(n, key, 1, fmt.Sprintf("must be 1 to %d; use match or an exemption for requests that are not counted", headgate.MaxCost))
	case yamldoc.Mapping:
		costKeys.read(d, n, key, &c)
	default:
		d.Bad(n, "%s: must be a number or {from: header.x-rows, default: 1, max: 10000}, not %s", key, n.Describe())
	}
	return c
}

func (e *encoder) cost(what string, c headgate.Cost) *node {
	if c.From == "" {
		return intNode(c.Default)
	}
	return costKeys.write(e, what, &c)
}
