package llmcost

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

// Prices is a price table. It is immutable and safe for concurrent use.
type Prices struct {
	exact    map[string]Price
	patterns []pattern // longest prefix first
	fallback *Price
}

// pattern is a model whose name ends in *.
type pattern struct {
	prefix string
	price  Price
}

// Price is the price of one model. The zero value is free; Prices contains none of these.
type Price struct{ input, cached, cacheWrite, output perToken }

// perToken is a price per token in billionths of a unit.
type perToken uint64

// Bounds of a price per million tokens. They make the sum of four products in Cost fit into 128 bits.
const (
	decimals  = 9
	scale     = 1_000_000_000 // 10^decimals
	maxPrice  = 1_000_000
	maxTokens = 10_000_000 // of one call; ten times the context of most models
	maxBytes  = 1 << 20    // of a file
)

// Load reads a price table from a file in YAML or JSON. The error lists all problems of the file, each with its line.
func Load(name string) (*Prices, error) {
	data, err := yamldoc.ReadFile(name, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	return Parse(name, data)
}

// Parse parses a price table in YAML or JSON. Errors use name as the file name.
func Parse(name string, data []byte) (*Prices, error) {
	d := &decoder{Decoder: yamldoc.Decoder{Source: yamldoc.Source{Name: name, Data: data}, Report: &yamldoc.Report{}}}
	p := d.prices()
	found := d.Report.Errors([]yamldoc.Source{d.Source})
	if len(found) == 0 {
		return p, nil
	}
	for _, e := range found {
		if e.In != "" {
			e.Problem = fmt.Sprintf("model %q: %s", yamldoc.Shorten(e.In), e.Problem)
		}
	}
	return nil, found
}

// Model returns the price of a model. It returns false if the table has none; the caller must then deny the call, because it would
// otherwise be free.
func (p *Prices) Model(name string) (Price, bool) {
	if price, ok := p.exact[name]; ok {
		return price, true
	}
	for _, one := range p.patterns {
		if strings.HasPrefix(name, one.prefix) {
			return one.price, true
		}
	}
	if p.fallback != nil {
		return *p.fallback, true
	}
	return Price{}, false
}

// Cost returns the cost of a call in whole units, rounded up and capped at headgate.MaxCost. It counts a negative number of tokens
// as 0, and as cached no more tokens than the call had.
func (p Price) Cost(u Usage) int64 {
	input := max(u.Input, 0)
	cached := min(max(u.Cached, 0), input)
	written := min(max(u.CacheWrite, 0), input-cached)
	var hi, lo uint64 // the sum in billionths of a unit, beginning with the rest that rounds up
	for _, part := range [...]struct {
		tokens int64
		price  perToken
	}{{1, scale - 1}, {input - cached - written, p.input}, {cached, p.cached}, {written, p.cacheWrite}, {max(u.Output, 0), p.output}} {
		h, l := bits.Mul64(uint64(part.tokens), uint64(part.price))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
	}
	if hi >= scale {
		return headgate.MaxCost
	}
	units, _ := bits.Div64(hi, lo, scale)
	return int64(min(units, headgate.MaxCost))
}

// decoder decodes a price table.
type decoder struct{ yamldoc.Decoder }

// priceKeys are the values of one model; a missing key is nil.
type priceKeys struct{ input, cached, cacheWrite, output *perToken }

var tableFields = []yamldoc.Field[*decoder, Prices]{
	{Key: "models", Read: func(d *decoder, n *yamldoc.Node, _ string, into *Prices) { d.models(n, into) }},
	{Key: "default", Read: func(d *decoder, n *yamldoc.Node, key string, into *Prices) {
		price := d.model(n, key)
		into.fallback = &price
	}},
}

var priceFields = []yamldoc.Field[*decoder, priceKeys]{
	{Key: "input", Read: func(d *decoder, n *yamldoc.Node, key string, into *priceKeys) { into.input = d.price(n, key) }},
	{Key: "cached", Read: func(d *decoder, n *yamldoc.Node, key string, into *priceKeys) { into.cached = d.price(n, key) }},
	{Key: "cache_write", Read: func(d *decoder, n *yamldoc.Node, key string, into *priceKeys) { into.cacheWrite = d.price(n, key) }},
	{Key: "output", Read: func(d *decoder, n *yamldoc.Node, key string, into *priceKeys) { into.output = d.price(n, key) }},
}

// prices decodes the source.
func (d *decoder) prices() *Prices {
	p := &Prices{exact: map[string]Price{}}
	if len(d.Source.Data) > maxBytes {
		d.Source.Data = nil
		d.BadAt(1, 1, fmt.Sprintf("the file is larger than %d MB: use patterns such as gpt-4o-*", maxBytes>>20))
		return p
	}
	checked, problem := d.Source.Check()
	d.Source = checked
	if problem != nil {
		d.Report.Add(0, problem)
		return p
	}
	documents, problems := yamldoc.Parse(d.Source)
	for _, problem := range problems {
		d.Report.Add(0, problem)
	}
	switch {
	case len(problems) > 0:
	case len(documents) != 1 || documents[0].Kind == yamldoc.Null:
		d.BadAt(1, 1, fmt.Sprintf("%d documents: must be one, with the key models", len(documents)))
	default:
		yamldoc.Fields(d, documents[0], "a price table", tableFields, p)
		if len(p.exact)+len(p.patterns) == 0 && p.fallback == nil && d.Report.Count() == 0 {
			d.Bad(documents[0], "no prices: add models or default")
		}
	}
	return p
}

// models decodes the models of a table.
func (d *decoder) models(n *yamldoc.Node, into *Prices) {
	if n.Kind != yamldoc.Mapping {
		d.Bad(n, "models: must be a mapping of names to prices, not %s", n.Describe())
		return
	}
	for _, e := range n.Entries {
		name := e.Key.Text
		prefix, isPattern := strings.CutSuffix(name, "*")
		d.In = name
		switch {
		case name == "*":
			d.Bad(e.Key, "matches all models: use default instead")
		case name == "" || strings.Contains(prefix, "*"):
			d.Bad(e.Key, "must be a name, or a pattern with one * at its end, such as gpt-4o-*")
		case !d.HasValue(e):
		case isPattern:
			into.patterns = append(into.patterns, pattern{prefix, d.model(e.Value, "prices")})
		default:
			into.exact[name] = d.model(e.Value, "prices")
		}
	}
	d.In = ""
	slices.SortFunc(into.patterns, func(a, b pattern) int { return len(b.prefix) - len(a.prefix) })
}

// model decodes the prices of a model.
func (d *decoder) model(n *yamldoc.Node, key string) Price {
	count := d.Report.Count()
	var keys priceKeys
	yamldoc.Fields(d, n, key, priceFields, &keys)
	switch {
	case d.Report.Count() > count:
		return Price{}
	case keys.input == nil || keys.output == nil:
		d.Bad(n, "%s: input and output are required: add them in the currency of your budget per million tokens", key)
		return Price{}
	case *keys.input == 0:
		d.Bad(n, "%s: input 0: must be more than 0, because calls would be free", key)
	}
	p := Price{input: *keys.input, cached: *keys.input, cacheWrite: *keys.input, output: *keys.output}
	if keys.cached != nil {
		p.cached = *keys.cached
	}
	if keys.cacheWrite != nil {
		p.cacheWrite = *keys.cacheWrite
	}
	return p
}

// price decodes a decimal without rounding it.
func (d *decoder) price(n *yamldoc.Node, key string) *perToken {
	whole, fraction, _ := strings.Cut(strings.ReplaceAll(n.Text, "_", ""), ".")
	value, err := strconv.ParseUint(whole+fraction, 10, 64)
	switch {
	case n.Kind == yamldoc.Text && err == nil:
		d.Bad(n, "%s: must be a number: write %s without quotes", key, yamldoc.Shorten(n.Text))
	case n.Kind != yamldoc.Number || err != nil || whole == "" || len(whole)+len(fraction) > 18:
		d.Bad(n, "%s: must be a decimal such as 0.15, not %s", key, n.Describe())
	case len(fraction) > decimals:
		d.Bad(n, "%s %s: must have at most %d decimals", key, n.Text, decimals)
	default:
		for range decimals - len(fraction) {
			value *= 10
		}
		if value <= maxPrice*scale {
			return (*perToken)(&value)
		}
		d.Bad(n, "%s %s: must be at most %d per million tokens", key, n.Text, maxPrice)
	}
	return nil
}
