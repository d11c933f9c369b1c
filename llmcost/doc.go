// Package llmcost computes what calls of language models cost, from a price table that is data: a YAML file with the prices of
// each model per million tokens.
//
//	prices, err := llmcost.Load("prices.yaml")
//	price, ok := prices.Model("gpt-4o-mini")
//	cost := price.Cost(llmcost.Usage{Input: 1200, Cached: 1000, Output: 80})
//
// It knows models, tokens and prices, but no HTTP and no limits: a cost is the Cost of a headgate.Request for a rule with a
// budget, whose cost has a max so that the number replaces the rule's own:
//
//	rules:
//	  - id: budget
//	    by: [tenant]
//	    limit: {quota: 20_000_000, calendar: month}   # 20 dollars
//	    cost: {max: 1_000_000_000}
//
// # Units
//
// Costs are in whole units of a millionth of what the prices are in: prices in dollars give costs in micro-dollars, so that a price
// of 0.15 per million tokens is 0.15 units per token. The arithmetic is exact, and each cost is rounded up once.
//
// A limit counts at most headgate.MaxCost = 1,000,000,000 units: 1,000 dollars in micro-dollars, or a billion tokens. For a larger
// budget write the prices in thousands of dollars, 0.00015 instead of 0.15: a unit is then a tenth of a cent, and a budget is at
// most a million dollars; calls that cost less than a unit are rounded up to it. To count tokens instead of money, write 1 for
// every price.
//
// # Price table
//
//	models:
//	  gpt-4o:      {input: 2.50, cached: 1.25, output: 10}
//	  gpt-4o-mini: {input: 0.15, cached: 0.075, output: 0.60}
//	  gpt-4o-*:    {input: 2.50, output: 10}
//	  claude-*:    {input: 3, cached: 0.30, cache_write: 6, output: 15}
//	default: {input: 30, output: 120}
//
// Names are compared exactly; a * at the end of a name matches the rest. An exact name has precedence over all patterns, a longer
// pattern over a shorter one, and all of them over default. cached and cache_write are input tokens that the model read from its
// cache or wrote to it; without these keys they cost as much as other input tokens. Without default an unknown model has no price,
// and its calls must be denied.
package llmcost
