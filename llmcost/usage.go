package llmcost

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Usage is the number of tokens of one call.
type Usage struct {
	// Input is all input tokens, including those in Cached and CacheWrite.
	Input int64
	// Cached is the input tokens that the model read from its cache, and CacheWrite those that it wrote to it.
	Cached, CacheWrite int64
	// Output is all output tokens, including those that the caller does not see, such as reasoning.
	Output int64
}

// wireUsage has the names of OpenAI's chat completions, of its responses, and of Anthropic's messages.
type wireUsage struct {
	Prompt        *int64  `json:"prompt_tokens"`
	PromptDetails details `json:"prompt_tokens_details"`
	Completion    int64   `json:"completion_tokens"`

	Input        *int64  `json:"input_tokens"`
	InputDetails details `json:"input_tokens_details"`
	Output       int64   `json:"output_tokens"`

	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

type details struct {
	Cached int64 `json:"cached_tokens"`
}

var errNoTokens = errors.New("usage: neither prompt_tokens nor input_tokens")

// UnmarshalJSON decodes the usage object of a model's response: of OpenAI's chat completions or responses, or of Anthropic's
// messages. Numbers that no call can have are an error, so that they neither make a call cheap nor use up a budget: negative ones,
// more than 10 million, and more cached tokens than input tokens.
func (u *Usage) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var w wireUsage
	if err := json.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	var got Usage
	// Anthropic does not count tokens that were read from the cache or written to it as input_tokens.
	separate := w.Prompt == nil && (w.CacheRead != 0 || w.CacheWrite != 0)
	switch {
	case w.Prompt != nil:
		got = Usage{Input: *w.Prompt, Cached: w.PromptDetails.Cached, Output: w.Completion}
	case w.Input == nil:
		return errNoTokens
	case separate:
		got = Usage{Input: *w.Input, Cached: w.CacheRead, CacheWrite: w.CacheWrite, Output: w.Output}
	default:
		got = Usage{Input: *w.Input, Cached: w.InputDetails.Cached, Output: w.Output}
	}
	for _, n := range []int64{got.Input, got.Cached, got.CacheWrite, got.Output} {
		if n < 0 || n > maxTokens {
			return fmt.Errorf("usage: %d tokens: must be 0 to %d", n, maxTokens)
		}
	}
	if separate {
		got.Input += got.Cached + got.CacheWrite
	}
	if got.Cached > got.Input {
		return fmt.Errorf("usage: %d cached tokens: must be at most the %d input tokens", got.Cached, got.Input)
	}
	*u = got
	return nil
}
