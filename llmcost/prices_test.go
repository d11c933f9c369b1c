package llmcost_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"testing/quick"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/llmcost"
)

const table = `
models:
  gpt-4o:      {input: 2.50, cached: 1.25, output: 10}
  gpt-4o-mini: {input: 0.15, cached: 0.075, output: 0.60}
  gpt-4o-*:    {input: 3, output: 11}
  gpt-4o-mini-2024*: {input: 0.16, output: 0.61}
  gpt-*:       {input: 4, output: 12}
  claude-*:    {input: 3, cached: 0.30, cache_write: 6, output: 15}
`

func parse(t testing.TB, text string) *llmcost.Prices {
	t.Helper()
	prices, err := llmcost.Parse("prices.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return prices
}

// TestModel checks that the most specific entry has precedence, whatever the order of the file, and that an unknown model has no price.
func TestModel(t *testing.T) {
	t.Parallel()
	million := llmcost.Usage{Input: 1_000_000}
	for _, test := range []struct {
		model string
		cost  int64 // 0 means no price
	}{
		{"gpt-4o", 2_500_000},
		{"gpt-4o-mini", 150_000},
		{"gpt-4o-mini-2024-07-18", 160_000},
		{"gpt-4o-mini-2025-01-01", 3_000_000},
		{"gpt-4o-", 3_000_000},
		{"gpt-4", 4_000_000},
		{"gpt-", 4_000_000},
		{"GPT-4o", 0},
		{" gpt-4o", 0},
		{"gpt", 0},
		{"*", 0},
		{"", 0},
	} {
		for text, fallback := range map[string]int64{table: 0, table + "default: {input: 30, output: 120}": 30_000_000} {
			price, ok := parse(t, text).Model(test.model)
			want := test.cost
			if want == 0 {
				want = fallback
			}
			if got := price.Cost(million); got != want || ok != (want > 0) {
				t.Errorf("model %q costs %d, %v; want %d", test.model, got, ok, want)
			}
		}
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	prices := parse(t, table+"  tokens: {input: 1, output: 1}\n  tiny: {input: 0.000000001, output: 0}\n  largest: {input: 1_000_000, output: 1_000_000}\n")
	for _, test := range []struct {
		model string
		usage llmcost.Usage
		want  int64
	}{
		{"gpt-4o-mini", llmcost.Usage{}, 0},
		{"gpt-4o-mini", llmcost.Usage{Input: 1200, Cached: 1000, Output: 80}, 153},           // 30 + 75 + 48
		{"gpt-4o-mini", llmcost.Usage{Input: 1}, 1},                                          // 0.15
		{"gpt-4o-mini", llmcost.Usage{Input: 1, Output: 1}, 1},                               // 0.75: rounded up once
		{"gpt-4o-mini", llmcost.Usage{Input: 20}, 3},                                         // exactly 3
		{"gpt-4o-mini", llmcost.Usage{Input: 10, Cached: 1000}, 1},                           // 0.75: cached are at most all
		{"gpt-4o-mini", llmcost.Usage{Input: 20, Cached: -1000, Output: -1000}, 3},           // negative counts as 0
		{"claude-x", llmcost.Usage{Input: 100, Cached: 50, CacheWrite: 30, Output: 10}, 405}, // 60 + 15 + 180 + 150
		{"claude-x", llmcost.Usage{Input: 100, Cached: 50, CacheWrite: math.MaxInt64}, 315},  // 15 + 300
		{"gpt-4", llmcost.Usage{Input: 100, Cached: 100}, 400},                               // no price for cached
		{"tokens", llmcost.Usage{Input: 1200, Cached: 1000, Output: 80}, 1280},
		{"tiny", llmcost.Usage{Input: 1, Output: 1_000_000}, 1},
		{"tiny", llmcost.Usage{Input: 1_000_000_000}, 1},
		{"tiny", llmcost.Usage{Input: 1_000_000_001}, 2},
		{"tiny", llmcost.Usage{Input: math.MaxInt64}, headgate.MaxCost},
		{"largest", llmcost.Usage{Input: 1000}, headgate.MaxCost},
		{"largest", llmcost.Usage{Input: math.MaxInt64, Output: math.MaxInt64}, headgate.MaxCost},
	} {
		price, _ := prices.Model(test.model)
		if got := price.Cost(test.usage); got != test.want {
			t.Errorf("%s: cost of %+v is %d, want %d", test.model, test.usage, got, test.want)
		}
	}
}

// FuzzCost compares the cost with exact fractions, and checks that more tokens never cost less.
func FuzzCost(f *testing.F) {
	f.Add(uint32(150_000), uint32(75_000), uint32(6), uint32(600_000_000), int64(1200), int64(1000), int64(7), int64(80))
	f.Add(uint32(1), uint32(0), uint32(1), uint32(0), int64(math.MaxInt64), int64(math.MaxInt64), int64(-1), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, input, cached, written, output uint32, in, read, write, out int64) {
		checkCost(t, [4]uint32{input, cached, written, output}, llmcost.Usage{Input: in, Cached: read, CacheWrite: write, Output: out})
	})
}

// TestCostIsExact does the same as FuzzCost with random numbers.
func TestCostIsExact(t *testing.T) {
	t.Parallel()
	check := func(prices [4]uint32, u llmcost.Usage) bool {
		checkCost(t, prices, u)
		u.Input, u.Cached, u.CacheWrite, u.Output = u.Input%maxTokens, u.Cached%maxTokens, u.CacheWrite%maxTokens, u.Output%maxTokens
		checkCost(t, prices, u)
		return !t.Failed()
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

const maxTokens = 10_000_000

// checkCost checks the cost of a call at prices in billionths.
func checkCost(t *testing.T, billionths [4]uint32, u llmcost.Usage) {
	t.Helper()
	var texts [4]string
	for i, n := range billionths {
		texts[i] = big.NewRat(int64(n), 1_000_000_000).FloatString(9)
	}
	if billionths[0] == 0 {
		texts[0], billionths[0] = "0.000000001", 1
	}
	price, _ := parse(t, fmt.Sprintf("default: {input: %s, cached: %s, cache_write: %s, output: %s}", texts[0], texts[1], texts[2], texts[3])).Model("any")
	input := max(u.Input, 0)
	cached := min(max(u.Cached, 0), input)
	written := min(max(u.CacheWrite, 0), input-cached)
	sum := new(big.Int)
	for i, tokens := range []int64{input - cached - written, cached, written, max(u.Output, 0)} {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(tokens), big.NewInt(int64(billionths[i]))))
	}
	want, rest := new(big.Int).QuoRem(sum, big.NewInt(1_000_000_000), new(big.Int))
	if rest.Sign() > 0 {
		want.Add(want, big.NewInt(1))
	}
	if limit := big.NewInt(headgate.MaxCost); want.Cmp(limit) > 0 {
		want = limit
	}
	got := price.Cost(u)
	if got != want.Int64() {
		t.Errorf("prices %v: cost of %+v is %d, want %d", texts, u, got, want)
	}
	if more := u; more.Output < math.MaxInt64 {
		more.Output++
		if price.Cost(more) < got {
			t.Errorf("prices %v: %+v costs less than %+v", texts, more, u)
		}
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                                                 `prices.yaml:1:1: 0 documents: must be one, with the key models`,
		"models: {}":                                                       `prices.yaml:1:1: no prices: add models or default`,
		"modles: {}":                                                       `prices.yaml:1:1: unknown key "modles"; did you mean "models"?`,
		"models: [a]":                                                      `prices.yaml:1:9: models: must be a mapping of names to prices, not a list`,
		"models:\n  a: 3\n":                                                `prices.yaml:2:6: model "a": prices must be a mapping of keys to values, not 3`,
		"models:\n  a:\n":                                                  `prices.yaml:2:3: model "a": a: no value: add one, or remove the key`,
		"models:\n  a: {input: 1}\n":                                       `prices.yaml:2:6: model "a": prices: input and output are required: add them`,
		"models:\n  a: {input: 0, output: 1}\n":                            `prices.yaml:2:6: model "a": prices: input 0: must be more than 0, because calls would be free`,
		"models:\n  a: {input: 1, output: -1}\n":                           `prices.yaml:2:25: model "a": output: must be a decimal such as 0.15, not -1`,
		"models:\n  a: {input: 1, outptu: 1}\n":                            `prices.yaml:2:17: model "a": unknown key "outptu"; did you mean "output"?`,
		"models:\n  a: {input: 1e3, output: 1}\n":                          `prices.yaml:2:14: model "a": input: must be a decimal such as 0.15, not "1e3"`,
		"models:\n  a: {input: .inf, output: 1}\n":                         `prices.yaml:2:14: model "a": input: must be a decimal such as 0.15, not .inf`,
		"models:\n  a: {input: 0x10, output: 1}\n":                         `prices.yaml:2:14: model "a": input: must be a decimal such as 0.15, not 0x10`,
		"models:\n  a: {input: \"1.5\", output: 1}\n":                      `prices.yaml:2:14: model "a": input: must be a number: write 1.5 without quotes`,
		"models:\n  a: {input: 0.0000000001, output: 1}\n":                 `prices.yaml:2:14: model "a": input 0.0000000001: must have at most 9 decimals`,
		"models:\n  a: {input: 1000001, output: 1}\n":                      `prices.yaml:2:14: model "a": input 1000001: must be at most 1000000 per million tokens`,
		"models:\n  a: {input: 18446744073709551616, output: 1}\n":         `prices.yaml:2:14: model "a": input: must be a decimal such as 0.15, not "18446744073709551616"`,
		"models:\n  a*b: {input: 1, output: 1}\n":                          `prices.yaml:2:3: model "a*b": must be a name, or a pattern with one * at its end, such as gpt-4o-*`,
		"models:\n  \"*\": {input: 1, output: 1}\n":                        `prices.yaml:2:3: model "*": matches all models: use default instead`,
		"models:\n  a: {input: 1, output: 1}\n  a: {input: 2, output: 1}":  `prices.yaml:3:3: duplicate key "a", first on line 2: remove one of them`,
		"models:\n  a: {input: 1, output: 1}\ndefault: {input: 2, out: 1}": `prices.yaml:3:21: unknown key "out"; valid keys of default: input, cached, cache_write, output`,
		"default: {output: 1}\n---\ndefault: {output: 1}":                  `prices.yaml:1:1: 2 documents: must be one`,
		strings.Repeat("#", 1<<20+1):                                       `prices.yaml:1:1: the file is larger than 1 MB`,
		"default: \x00":                                                    `prices.yaml:1:10: control character U+0000: remove it`,
	} {
		_, err := llmcost.Parse("prices.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60q: %v\nwant %s", text, err, want)
		}
	}
	if _, err := llmcost.Load("missing.yaml"); err == nil || !strings.HasPrefix(err.Error(), "prices: open missing.yaml") {
		t.Error(err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]llmcost.Usage{
		// OpenAI, chat completions.
		`{"prompt_tokens": 1200, "completion_tokens": 80, "total_tokens": 1280, "prompt_tokens_details": {"cached_tokens": 1000, "audio_tokens": 0},
		  "completion_tokens_details": {"reasoning_tokens": 64}}`: {Input: 1200, Cached: 1000, Output: 80},
		`{"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": null}`: {Input: 5, Output: 7},
		// OpenAI, embeddings.
		`{"prompt_tokens": 5, "total_tokens": 5}`: {Input: 5},
		// OpenAI, responses.
		`{"input_tokens": 30, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 9, "total_tokens": 39}`: {Input: 30, Cached: 20, Output: 9},
		// Anthropic.
		`{"input_tokens": 10, "cache_read_input_tokens": 2000, "cache_creation_input_tokens": 300, "output_tokens": 4}`: {
			Input: 2310, Cached: 2000, CacheWrite: 300, Output: 4,
		},
		`{"input_tokens": 10, "cache_read_input_tokens": 0, "cache_creation_input_tokens": null, "output_tokens": 4}`: {Input: 10, Output: 4},
		// A proxy that has both forms.
		`{"prompt_tokens": 2310, "prompt_tokens_details": {"cached_tokens": 2000}, "cache_read_input_tokens": 2000, "completion_tokens": 4}`: {
			Input: 2310, Cached: 2000, Output: 4,
		},
		`null`: {},
	} {
		var got llmcost.Usage
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestUsageRejected(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, `7`, `"x"`,
		`{"completion_tokens": 7}`,
		`{"total_tokens": 7}`,
		`{"prompt_tokens": -1, "completion_tokens": 7}`,
		`{"prompt_tokens": 1, "completion_tokens": -7}`,
		`{"prompt_tokens": 1, "completion_tokens": 10000001}`,
		`{"prompt_tokens": 10000001, "completion_tokens": 1}`,
		`{"prompt_tokens": 9223372036854775808, "completion_tokens": 1}`,
		`{"prompt_tokens": 1e3, "completion_tokens": 1}`,
		`{"prompt_tokens": 1.5, "completion_tokens": 1}`,
		`{"prompt_tokens": "1", "completion_tokens": 1}`,
		`{"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 11}}`,
		`{"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": -1}}`,
		`{"input_tokens": -5, "cache_read_input_tokens": 10, "output_tokens": 1}`,
		`{"input_tokens": 5, "cache_read_input_tokens": 9223372036854775807, "cache_creation_input_tokens": 9223372036854775807, "output_tokens": 1}`,
		`{"input_tokens": 5, "cache_read_input_tokens": -1, "cache_creation_input_tokens": 1, "output_tokens": 1}`,
	} {
		before := llmcost.Usage{Input: 1, Output: 2}
		got := before
		if err := json.Unmarshal([]byte(text), &got); err == nil || got != before {
			t.Errorf("%s: %+v, %v; want an error and an unchanged usage", text, got, err)
		}
	}
}
