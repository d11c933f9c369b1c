package main

import "time"

// plan is a scene: the demand, the budget, and when parts are killed.
type plan struct {
	lasts time.Duration
	// streams is the number of clients, each with one stream at a time.
	streams int
	// pace is the time between two tokens. A response has shortest to longest tokens.
	pace              time.Duration
	shortest, longest int
	// resets is the fraction of streams that clients reset, after a random number of tokens.
	resets float64
	// retry is how long a client waits at least after a call that was denied or failed.
	retry time.Duration
	// budget is in millionths of a dollar. leastUsed is the fraction of it that Headgate's side has to use.
	budget    int64
	leastUsed float64
	// chunk is the number of tokens that a Headgate gateway reserves at a time.
	chunk int64
	// The gateway is killed before Redis, which is killed half-way.
	gatewayKilled, redisKilled, redisUp time.Duration
}

// gateways is the number of Headgate gateways.
const gateways = 4

// The demand is streams/pace tokens per second, times price. The budgets are reached after about two thirds of the time.
//
// What Headgate cannot use of a budget is what no one gives back: the rest of the chunk of each stream of the killed gateway, and of
// each stream that ends while Redis is down, which may be all; and the slack of each stream that does not end by itself, which are
// those that clients reset and those that the end of the budget stops. In tokens:
//
//	full:  (50 + 200) × 8 + 2 × (118 + 200) = 2636, 2.5 % of the 106,666 tokens of the budget
//	short: (10 + 40) × 6 + 2 × (31 + 40) = 442, 2.4 % of 18,666
//
// On a machine that stalls, a call to Redis that takes longer than its deadline leaves its chunk charged too. A short run is made on any
// machine, and so has room for a few hundred of them.
var (
	full = plan{
		lasts: 90 * time.Second, streams: 200, pace: 100 * time.Millisecond, shortest: 30, longest: 150, resets: 0.1,
		retry: 500 * time.Millisecond, budget: 8_000_000, leastUsed: 0.97, chunk: 8,
		gatewayKilled: 25 * time.Second, redisKilled: 45 * time.Second, redisUp: 49 * time.Second,
	}
	short = plan{
		lasts: 20 * time.Second, streams: 40, pace: 25 * time.Millisecond, shortest: 15, longest: 105, resets: 0.1,
		retry: 250 * time.Millisecond, budget: 1_400_000, leastUsed: 0.85, chunk: 6,
		gatewayKilled: 5 * time.Second, redisKilled: 8 * time.Second, redisUp: 9 * time.Second,
	}
)

// unusable returns the most that Headgate may leave of a budget, as above.
func (p *plan) unusable() int64 {
	mean := int64(p.shortest+p.longest) / 2
	resets := int64(p.resets * float64(p.budget/price/mean))
	return (int64(p.streams/gateways+p.streams)*p.chunk + slack*(resets+int64(p.streams))) * price
}
