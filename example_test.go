package headgate_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
)

// A bucket of three units that refills by one unit every 20 seconds.
func ExampleLimit_Take() {
	limit := headgate.PerMinute(3)
	var state headgate.State // an unused counter
	now := time.Date(2025, 8, 1, 12, 0, 0, 0, time.UTC)

	for range 4 {
		var r headgate.Result
		state, r = limit.Take(state, headgate.Charge{Cost: 1}, now)
		fmt.Println(r.Allowed, r.Remaining, r.RetryAfter)
		now = now.Add(time.Second)
	}
	// Output:
	// true 2 0s
	// true 1 0s
	// true 0 0s
	// false 0 17s
}

// A request that counts against two limits is charged on both of them or on none.
func ExampleDecide() {
	now := time.Date(2025, 8, 1, 12, 0, 0, 0, time.UTC)
	charges := []headgate.Charge{
		{Counter: headgate.CounterOf("search", "peak", headgate.TokenBucket), Limit: headgate.PerSecond(2), Cost: 1},
		{Counter: headgate.CounterOf("search", "month", headgate.FixedWindow), Limit: headgate.Quota(100, headgate.Month, nil), Cost: 1},
	}
	states := make([]headgate.State, 2)
	results := make([]headgate.Result, 2)

	for range 3 {
		allowed := headgate.Decide(charges, states, results, now)
		fmt.Println(allowed, "peak:", results[0].Remaining, "month:", results[1].Remaining)
	}
	fmt.Println("retry after", results[0].RetryAfter)
	// Output:
	// true peak: 1 month: 99
	// true peak: 0 month: 98
	// false peak: 0 month: 98
	// retry after 500ms
}
