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
	intField("default", "cost of requests that no entry of `costs` matches, and whose attribute is absent or not a whole number", 1, "", func(c *headgate.Cost) *int64 { return &c.Default }).
		withSchema(countSchema+`, "default": 1`).withDefault("`1`"),
	intField("min", "lower bound: a smaller cost of the caller is raised to it", 1, "", func(c *headgate.Cost) *int64 { return &c.Min }).
		withSchema(countSchema+`, "default": 1`).withDefault("`1`"),
	intField("max", "upper bound: a larger cost of the caller is reduced to it; without `from`, the cost that a caller sends replaces that of the rule, up to `max`, instead of multiplying it", 1, "", func(c *headgate.Cost) *int64 { return &c.Max }).
		withSchema(fmt.Sprintf(`%s, "default": %d`, countSchema, headgate.MaxCost)).withDefault(fmt.Sprintf("`%d`", headgate.MaxCost)),
)

// costEntryKeys are the keys of an entry of costs.
var costEntryKeys = newObject(
	field[headgate.CostEntry]{
		key: "match", doc: "requests that the entry is for, as in `match` of a rule", unset: "required", schema: `"$ref": "#/$defs/match"`,
		read:  func(d *decoder, n *node, key string, c *headgate.CostEntry) { c.Match = d.match(n, key) },
		write: func(e *encoder, what string, c *headgate.CostEntry) *node { return e.match(what, c.Match) },
	},
	intField("cost", "units that they are charged", 1, fmt.Sprintf("must be 1 to %d", headgate.MaxCost),
		func(c *headgate.CostEntry) *int64 { return &c.Cost }).withSchema(countSchema).withDefault("required"),
)

func (d *decoder) costEntry(n *node) headgate.CostEntry {
	var c headgate.CostEntry
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "costs: each entry must be like {match: {path: /reports}, cost: 10}, not %s", n.Describe())
		return c
	}
	costEntryKeys.read(d, n, "an entry of costs", &c)
	return c
}

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
	if c == (headgate.Cost{Default: c.Default}) {
		return intNode(c.Default)
	}
	return costKeys.write(e, what, &c)
}
