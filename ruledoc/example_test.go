package ruledoc_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/ruledoc"
)

const rulesFile = `
rules:
  - id: login-by-ip
    match: {path: /login, method: POST}
    by: [ip]
    limit: 2/minute
`

// Parse rules and apply them to a limiter. Use Load for files, and Watch to reload them when they change.
func Example() {
	limiter, err := headgate.New(memstore.New(memstore.Options{}))
	if err != nil {
		log.Fatal(err)
	}
	document, err := ruledoc.Parse("rules.yaml", []byte(rulesFile))
	if err != nil {
		log.Fatal(err)
	}
	if err := document.Apply(limiter); err != nil {
		log.Fatal(err)
	}
	login := headgate.Attributes{"path": "/login", "method": "POST", "ip": "192.0.2.1"}
	for range 3 {
		decision, err := limiter.Check(context.Background(), headgate.Request{Attributes: login})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(decision.Allowed)
	}
	// Output:
	// true
	// true
	// false
}

// ParseLimit reads a limit as rule files have it. An override without a burst scales the burst of the limit that it replaces.
func ExampleParseLimit() {
	rule, err := ruledoc.ParseLimit("1000/minute burst 200", headgate.Limit{})
	if err != nil {
		log.Fatal(err)
	}
	override, err := ruledoc.ParseLimit("5000/minute", rule)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(override.Capacity())
	// Output: 1000
}
