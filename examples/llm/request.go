package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

const (
	// firstOutput is the number of output tokens that are reserved with a stream, and with each extension.
	firstOutput = 256
	// defaultMaxTokens is the max_tokens of a call that has none and is not a stream, because such a call cannot be stopped.
	defaultMaxTokens = 1024
	// maxTokens and maxChoices bound what a client may ask for.
	maxTokens  = 10_000_000
	maxChoices = 128
)

// chatRequest is a chat completion as the client sent it.
type chatRequest struct {
	fields map[string]json.RawMessage
	model  string
	stream bool
	// wantsUsage is whether the client asked for the chunk with the usage at the end of a stream.
	wantsUsage bool
	choices    int64
	// maxOutput is the largest number of output tokens of all choices, or 0 if the client has set none.
	maxOutput int64
}

// decisive are the keys that the cost depends on. Some model servers ignore case: another spelling of them would not be counted.
var decisive = []string{"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "service_tier"}

// parseRequest parses the body of a chat completion. Keys are compared exactly and only one of two equal ones is forwarded, so that
// the model server reads no other request than this one.
func parseRequest(body []byte) (*chatRequest, error) {
	r := &chatRequest{choices: 1}
	if err := json.Unmarshal(body, &r.fields); err != nil {
		return nil, fmt.Errorf("body: not a JSON object: %w", err)
	}
	for key := range r.fields {
		for _, name := range decisive {
			if key != name && strings.EqualFold(key, name) {
				return nil, fmt.Errorf("%q: unknown key: write %s", key, name)
			}
		}
	}
	var older, newer int64
	for key, into := range map[string]any{
		"model": &r.model, "stream": &r.stream, "max_tokens": &older, "max_completion_tokens": &newer, "n": &r.choices,
	} {
		if value, ok := r.fields[key]; ok {
			if err := json.Unmarshal(value, into); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	switch {
	case r.model == "":
		return nil, errors.New("model: required")
	case older < 0 || older > maxTokens || newer < 0 || newer > maxTokens:
		return nil, fmt.Errorf("max_tokens: must be 1 to %d", maxTokens)
	case r.choices < 1 || r.choices > maxChoices:
		return nil, fmt.Errorf("n: must be 1 to %d", maxChoices)
	}
	options := map[string]json.RawMessage{}
	if value, ok := r.fields["stream_options"]; ok {
		if err := json.Unmarshal(value, &options); err != nil {
			return nil, fmt.Errorf("stream_options: %w", err)
		}
	}
	r.wantsUsage = string(options["include_usage"]) == "true"
	r.maxOutput = max(older, newer) * r.choices
	delete(r.fields, "service_tier") // other tiers have other prices
	switch {
	case r.stream:
		if options == nil { // it was null
			options = map[string]json.RawMessage{}
		}
		options["include_usage"] = json.RawMessage("true")
		r.fields["stream_options"], _ = json.Marshal(options) // cannot fail: it was JSON before
	case r.maxOutput == 0:
		r.fields["max_tokens"], _ = json.Marshal(defaultMaxTokens)
		r.maxOutput = defaultMaxTokens * r.choices
	}
	return r, nil
}

// firstOutput returns the number of output tokens to reserve before the call.
func (r *chatRequest) firstOutput() int64 {
	if r.stream && (r.maxOutput == 0 || r.maxOutput > firstOutput) {
		return firstOutput
	}
	return r.maxOutput
}

// body returns the request to forward.
func (r *chatRequest) body() []byte {
	body, _ := json.Marshal(r.fields) // cannot fail: it was JSON before
	return body
}
