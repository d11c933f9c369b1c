package headgate_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

// Reserve holds units for a request whose cost is known only afterwards, such as a call to a language model. Commit charges what it did cost.
func ExampleLimiter_Reserve() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{ID: "tokens", By: []string{"user"}, Limit: headgate.PerDay(1000)})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	ann := headgate.Attributes{"user": "ann"}

	held, err := limiter.Reserve(ctx, headgate.Request{Attributes: ann, Cost: 800}, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("allowed:", held.Decision.Allowed, "remaining:", held.Decision.Limits[0].Remaining)

	decision, err := limiter.Commit(ctx, held.Token, headgate.Request{Cost: 650})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("remaining after the commit:", decision.Limits[0].Remaining)
	// Output:
	// allowed: true remaining: 200
	// remaining after the commit: 350
}

// Extend lets a stream reserve as it goes: it never produces what its budget does not cover, and stops when the budget is used up.
func ExampleLimiter_Extend() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}), headgate.Rule{
		ID: "tokens", By: []string{"user"}, Limit: headgate.Quota(1000, headgate.Month, nil), OnHoldExpiry: headgate.ChargeHold,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	tokens := func(n int64) headgate.Request {
		return headgate.Request{Attributes: headgate.Attributes{"user": "ann"}, Cost: n}
	}

	stream, err := limiter.Reserve(ctx, tokens(400), time.Minute)
	produced := int64(0)
	for err == nil && stream.Decision.Allowed {
		produced = stream.Covered // the stream produces what is covered
		fmt.Println("produced", produced)
		stream, err = limiter.Extend(ctx, stream.Token, tokens(produced), tokens(produced+400), time.Minute)
	}
	if err != nil {
		log.Fatal(err)
	}
	if _, err := limiter.Commit(ctx, stream.Token, tokens(produced)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("stopped by rule", stream.Decision.DeniedBy().Rule)
	// Output:
	// produced 400
	// produced 800
	// produced 1000
	// stopped by rule tokens
}
