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
