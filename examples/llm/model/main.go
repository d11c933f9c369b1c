// Command model stands in for a model server in the example: it answers every chat completion with "hello " as often as max_tokens
// says, or 1000 times, as a stream or at once. It knows no language; a token is a word.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	address := "127.0.0.1:9000"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(complete), ReadHeaderTimeout: time.Second}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}

// complete serves a chat completion.
func complete(w http.ResponseWriter, r *http.Request) {
	request := struct {
		Model     string
		Stream    bool
		MaxTokens int `json:"max_tokens"`
		Messages  []struct{ Content string }
	}{MaxTokens: 1000}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	input := 1
	for _, message := range request.Messages {
		input += len(strings.Fields(message.Content))
	}
	name := fmt.Sprintf(`"model": %q`, request.Model)
	usage := fmt.Sprintf(`"usage": {"prompt_tokens": %d, "completion_tokens": %d}`, input, request.MaxTokens)
	if !request.Stream {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{%s, "choices": [{"index": 0, "message": {"content": %q}, "finish_reason": "length"}], %s}`+"\n",
			name, strings.Repeat("hello ", request.MaxTokens), usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for range request.MaxTokens {
		if _, err := fmt.Fprintf(w, "data: {%s, \"choices\": [{\"index\": 0, \"delta\": {\"content\": \"hello \"}}]}\n\n", name); err != nil {
			return // the proxy has stopped the stream
		}
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = fmt.Fprintf(w, "data: {%s, \"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"length\"}]}\n\n", name)
	_, _ = fmt.Fprintf(w, "data: {%s, \"choices\": [], %s}\n\ndata: [DONE]\n\n", name, usage)
}
