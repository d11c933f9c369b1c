package checkhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/check"
)

var update = flag.Bool("update", false, "update the golden files")

// exchange is a request of a file in testdata with its response.
type exchange struct {
	request  *http.Request
	body     string // of the request
	response *httptest.ResponseRecorder
}

// token stands for a reservation in testdata and in the examples of openapi.yaml.
const token = "aGctcmVzZXJ2YXRpb24" //nolint:gosec // It is not a secret.

// slotsText stands for slots, which are random.
const slotsText = "c2xvdHMgb2YgcmVxdWVzdA"

var slotsMember = regexp.MustCompile(`"slots":"([^"]*)"`)

// unjittered removes the random part of forward-auth's waits: the limits in testdata are such that the waits are 6 s or 1 s.
var unjittered = strings.NewReplacer("in 7 seconds", "in 6 seconds", `"retry_after":7`, `"retry_after":6`,
	"in 2 seconds", "in 1 second", `"retry_after":2`, `"retry_after":1`)

// TestGolden sends the requests of the files in testdata and compares the responses. Each file has its own handler, which its
// first line names.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := golden(t, string(data), func(exchange) {})
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(data) {
				t.Errorf("got:\n%s\nwant:\n%s", got, data)
			}
		})
	}
}

// golden returns the content of a file with the current responses.
func golden(t *testing.T, data string, visit func(exchange)) string {
	t.Helper()
	name, rest, _ := strings.Cut(data, "\n\n")
	h := handlerFor(t, name)
	var out []string
	last, lastSlots := "", ""
	for part := range strings.SplitSeq(rest, "\n===\n") {
		sent, _, _ := strings.Cut(part, "\n---\n")
		sent = strings.TrimRight(sent, "\n")
		e := parse(t, sent, map[string]string{token: last, slotsText: lastSlots})
		e.response = serve(h, e.request)
		var held struct{ Reservation string }
		if json.Unmarshal(e.response.Body.Bytes(), &held) == nil && held.Reservation != "" {
			last = held.Reservation
		}
		checkFraming(t, e)
		text := e.response.Body.String()
		if last != "" {
			text = strings.ReplaceAll(text, last, token)
		}
		for _, match := range slotsMember.FindAllStringSubmatch(text, -1) {
			lastSlots = match[1]
			text = strings.ReplaceAll(text, lastSlots, slotsText)
		}
		e.response.Body = bytes.NewBufferString(unjittered.Replace(text))
		visit(e)
		out = append(out, sent+"\n---\n"+render(t, e))
	}
	return name + "\n\n" + strings.Join(out, "\n===\n") + "\n"
}

func handlerFor(t *testing.T, name string) http.Handler {
	t.Helper()
	switch name {
	case "refunds allowed":
		return newTest(t, limiter(t), Options{MayRefund: check.AllRefund})
	case "refunds not allowed":
		return newTest(t, limiter(t), Options{})
	case "refunds by token":
		return newTest(t, limiter(t), Options{MayRefund: func(_ context.Context, authorization, peer string) error {
			if authorization == "Bearer right" && peer == "10.0.0.1:4711" {
				return nil
			}
			return errors.New("refund: requires the role editor; ann has the role viewer")
		}})
	case "store unavailable":
		return newTest(t, limiterOn(t, unavailableStore{}), Options{MayRefund: check.AllRefund})
	case "requests in flight":
		return newTest(t, concurrencyLimiter(t), Options{})
	case "engine broken":
		return newTest(t, brokenEngine{limiter(t)}, Options{MayRefund: check.AllRefund})
	}
	t.Fatalf("unknown handler %q", name)
	return nil
}

// parse reads a request: its first line, headers, a blank line and the body, in which #n# stands for n letters. The peer is a
// trusted proxy.
// sent has what to send instead of a text in the body, unless it is empty.
func parse(t *testing.T, text string, sent map[string]string) exchange {
	t.Helper()
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	method, path, ok := strings.Cut(lines[0], " ")
	if !ok {
		t.Fatalf("%q: not a request", lines[0])
	}
	e := exchange{body: body}
	for name, value := range sent {
		if value != "" {
			body = strings.ReplaceAll(body, name, value)
		}
	}
	if before, n, ok := strings.Cut(body, "#"); ok {
		number, after, _ := strings.Cut(n, "#")
		count, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		body = before + strings.Repeat("x", count) + after
	}
	e.request = httptest.NewRequest(method, path, strings.NewReader(body))
	e.request.RemoteAddr = "10.0.0.1:4711"
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		e.request.Header.Add(name, value)
	}
	return e
}

// checkFraming checks the headers that all responses have.
func checkFraming(t *testing.T, e exchange) {
	t.Helper()
	h := e.response.Header()
	if h.Get("Cache-Control") != "no-store" || h.Get("Content-Encoding") != "" {
		t.Errorf("%s: headers %v", e.request.URL, h)
	}
	// net/http sets the Content-Length of denials of package httplimit.
	if n := h.Get("Content-Length"); n != strconv.Itoa(e.response.Body.Len()) && e.request.URL.Path != pathAuthorize {
		t.Errorf("%s: Content-Length %q of %d bytes", e.request.URL, n, e.response.Body.Len())
	}
}

func render(t *testing.T, e exchange) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, e.response.Code)
	for _, name := range slices.Sorted(maps.Keys(e.response.Header())) {
		switch name {
		case "Cache-Control", "Content-Length":
		case "Retry-After":
			fmt.Fprintln(&b, "Retry-After: (random)")
		default:
			fmt.Fprintf(&b, "%s: %s\n", name, e.response.Header().Get(name))
		}
	}
	body := e.response.Body.Bytes()
	if json.Valid(body) {
		var indented bytes.Buffer
		if err := json.Indent(&indented, body, "", "  "); err != nil {
			t.Fatal(err)
		}
		body = indented.Bytes()
	} else if len(body) > 100 {
		body = body[:bytes.IndexByte(body, '\n')+1]
	}
	b.Write(body)
	return strings.TrimSpace(b.String())
}
