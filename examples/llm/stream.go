package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/llmcost"
)

const (
	// maxEvent bounds an event of a stream, and maxResponse a response that is not one.
	maxEvent    = 1 << 20
	maxResponse = 16 << 20
	// writeTimeout is how long a client may take to read an event.
	writeTimeout = 30 * time.Second
)

// errBudget means that the budget does not cover the next event of a stream.
var errBudget = errors.New("budget exhausted")

// relay sends the events of the model to the client, each as soon as it arrives, and stops before the one that the budget does not
// cover.
func (c *call) relay(ctx context.Context, w http.ResponseWriter, from io.Reader) error {
	events := bufio.NewReader(from)
	for {
		event, data, err := readEvent(events)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			event = []byte(":\n\n") // a comment keeps the connection open; its text would not be counted
		}
		done := string(data) == "[DONE]"
		if !done && len(data) > 0 {
			before := c.meter
			tokens, onlyUsage := c.count(data)
			if tokens > 0 && !c.cover(ctx, c.meter.cost()) {
				if c.meter.usage == before.usage {
					c.meter = before // the client does not get the event
				}
				return errBudget
			}
			c.charged = c.charged || tokens > 0
			if onlyUsage && !c.request.wantsUsage {
				continue
			}
		}
		if err := c.send(w, event); err != nil || done {
			return err
		}
	}
}

// send sends an event to the client at once.
func (c *call) send(w http.ResponseWriter, event []byte) error {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not all writers have one
	c.started = true
	if _, err := w.Write(event); err != nil {
		return err
	}
	return control.Flush()
}

// count adds an event or a response to the meter. It returns how many tokens it has at most, and whether it only reports the usage.
func (c *call) count(data []byte) (tokens int64, usageOnly bool) {
	var chunk struct {
		Choices []map[string]any `json:"choices"`
		Usage   json.RawMessage  `json:"usage"`
	}
	if err := json.Unmarshal(data, &chunk); err != nil || chunk.Choices == nil {
		tokens = int64(len(data)) // not a completion: nothing that is relayed is free
	}
	for _, choice := range chunk.Choices {
		delete(choice, "finish_reason")
		delete(choice, "logprobs")
		tokens += textBytes(choice)
	}
	c.meter.since += tokens
	var usage llmcost.Usage
	if len(chunk.Usage) == 0 || json.Unmarshal(chunk.Usage, &usage) != nil {
		return tokens, false
	}
	c.meter.report(usage)
	return tokens, len(chunk.Choices) == 0
}

// textBytes returns the length of all texts in a JSON value, except roles.
func textBytes(value any) (n int64) {
	switch v := value.(type) {
	case string:
		n = int64(len(v))
	case []any:
		for _, item := range v {
			n += textBytes(item)
		}
	case map[string]any:
		for key, item := range v {
			if key != "role" {
				n += textBytes(item)
			}
		}
	}
	return n
}

// readEvent returns the next server-sent event unchanged, and its data.
func readEvent(from *bufio.Reader) (event, data []byte, err error) {
	for begin := 0; ; {
		part, err := from.ReadSlice('\n')
		event = append(event, part...)
		line := bytes.TrimRight(event[begin:], "\r\n")
		switch {
		case len(event) > maxEvent:
			return nil, nil, fmt.Errorf("event of more than %d bytes", maxEvent)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && string(bytes.TrimSpace(event)) == "data: [DONE]": // some servers omit the empty line
			return []byte("data: [DONE]\n\n"), []byte("[DONE]"), nil
		case errors.Is(err, io.EOF):
			return nil, nil, io.ErrUnexpectedEOF // a stream ends with [DONE]
		case err != nil:
			return nil, nil, err
		case len(line) == 0:
			return event, data, nil
		}
		begin = len(event)
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(text, []byte(" "))...)
		}
	}
}
