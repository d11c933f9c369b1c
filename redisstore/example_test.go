package redisstore_test

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/redisstore"
)

// Several limits on several subjects in one request: all are charged, or none.
func ExampleStore_Take() {
	berlin, _ := time.LoadLocation("Europe/Berlin")
	peak := headgate.CounterOf("api", "peak", headgate.TokenBucket)
	month := headgate.CounterOf("api", "month", headgate.FixedWindow)
	burst := headgate.CounterOf("tenants", "", headgate.TokenBucket)

	_ = func(ctx context.Context, store *redisstore.Store, userID, tenantID string) error {
		charges := []headgate.Charge{
			{Subject: headgate.SubjectOf("user", userID), Counter: peak, Limit: headgate.PerSecond(5), Cost: 1},
			{Subject: headgate.SubjectOf("user", userID), Counter: month, Limit: headgate.Quota(100_000, headgate.Month, berlin), Cost: 1},
			{Subject: headgate.SubjectOf("tenant", tenantID), Counter: burst, Limit: headgate.Limit{Count: 1000, Window: time.Minute, Burst: 200}, Cost: 1},
		}
		results := make([]headgate.Result, len(charges))
		err := store.Take(ctx, charges, results)
		return err
	}
}
