package llmcost_test

import (
	"encoding/json"
	"fmt"
	"log"

	"github.com/headgate/headgate/llmcost"
)

// Compute the cost of a call from the usage in the model's response. Use Load for a file.
func Example() {
	prices, err := llmcost.Parse("prices.yaml", []byte(`
models:
  gpt-4o-mini: {input: 0.15, cached: 0.075, output: 0.60}   # dollars per million tokens
`))
	if err != nil {
		log.Fatal(err)
	}
	price, ok := prices.Model("gpt-4o-mini")
	if !ok {
		log.Fatal("unknown model: deny the call") // or else it would be free
	}
	var response struct{ Usage llmcost.Usage }
	const body = `{"usage": {"prompt_tokens": 1200, "prompt_tokens_details": {"cached_tokens": 1000}, "completion_tokens": 80}}`
	if err := json.Unmarshal([]byte(body), &response); err != nil {
		log.Fatal(err)
	}
	fmt.Println(price.Cost(response.Usage), "micro-dollars")
	// Output: 153 micro-dollars
}
