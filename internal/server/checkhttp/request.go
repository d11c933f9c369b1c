package checkhttp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/tracing"
)

// What the values of members have to be.
const (
	attributesAre = "an object of strings"
	tokenIs       = "a string"
)

// member is one of an object's members that are known.
type member struct {
	name string
	into any
	is   string // what the value has to be
}

// bound is how many of something an object may have.
type bound struct {
	most int
	of   string
}

var (
	request = bound{check.MaxAttributes, "attributes"}
	batch   = bound{check.MaxBatch, "requests"}
)

// decode reads an object. Names are those of members, to the letter; null is the same as nothing.
func decode(body []byte, within bound, members ...member) error {
	bad := func(format string, args ...any) error { return check.Problemf(http.StatusBadRequest, format, args...) }
	switch n, items := countItems(body); {
	case n > maxMembers:
		return bad("there are %d members: send each once", n)
	case items > within.most:
		return bad("there are %d %s: send at most %d", items, within.of, within.most)
	}
	if !utf8.Valid(body) {
		return bad("what was sent is not UTF-8: it must be for JSON")
	}
	var given map[string]json.RawMessage
	var syntax *json.SyntaxError
	switch err := json.Unmarshal(body, &given); {
	case errors.As(err, &syntax):
		return bad("what was sent is not JSON: %v after %d bytes", err, syntax.Offset)
	case given == nil:
		return bad("what was sent is no object: send one, which may be empty: {}")
	}
	var names []string
	for _, m := range members {
		names = append(names, m.name)
		value, ok := given[m.name]
		if !ok {
			continue
		}
		delete(given, m.name)
		if err := json.Unmarshal(value, m.into); err != nil {
			if m.name == "attributes" { // which may be secrets
				return bad("%s is not %s", m.name, m.is)
			}
			return bad("%s is not %s: it is %.100s", m.name, m.is, value)
		}
	}
	if len(given) > 0 {
		unknown := slices.Sorted(maps.Keys(given))
		return bad("there is no member %s: send %s", quoted(unknown), strings.Join(names, ", "))
	}
	return nil
}

// maxMembers is more than any object has that is known.
const maxMembers = 32

// countItems returns how many members a document has, and how many members and items there are in their values, before anything
// is decoded: decoded, they take up to a hundred times the memory. Of what is not JSON it counts something.
func countItems(body []byte) (members, items int) {
	level, text := 0, false
	empty := false // the list or object that began last
	count := func() {
		switch level {
		case 1:
			members++
		case 2:
			items++
		}
	}
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text, empty = !text, false
		case text || c == ' ' || c == '\n' || c == '\r' || c == '\t':
		case c == '{' || c == '[':
			level++
			empty = true
		case c == '}' || c == ']':
			if !empty {
				count()
			}
			level--
			empty = false
		case c == ',':
			count()
		default:
			empty = false
		}
	}
	return members, items
}

// quoted lists names that a caller has made up.
func quoted(names []string) string {
	const most = 5
	var b strings.Builder
	for i, name := range names[:min(len(names), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.100q", name)
	}
	if len(names) > most {
		fmt.Fprintf(&b, " and %d more", len(names)-most)
	}
	return b.String()
}

// readRequest reads a request, with members of its own if there are more. The context that it returns is in the trace that the
// request names.
func (h *handler) readRequest(ctx context.Context, body []byte, more ...member) (context.Context, headgate.Request, error) {
	var req headgate.Request
	var parent string
	members := []member{
		{"attributes", &req.Attributes, attributesAre}, {"rule", &req.Rule, "a string"}, {"traceparent", &parent, "a string"},
	}
	err := h.decodeRequest(body, &req, append(members, more...)...)
	return tracing.Within(ctx, parent), req, err
}

// decodeRequest reads the members and the cost.
func (h *handler) decodeRequest(body []byte, req *headgate.Request, members ...member) error {
	var cost *int64
	if err := decode(body, request, append(members, member{"cost", &cost, "a whole number"})...); err != nil {
		return err
	}
	if cost != nil {
		// Nobody who writes 0 means 1.
		if *cost == 0 {
			return check.Problemf(http.StatusBadRequest, "cost is 0: send 1 to %d, or leave it out for 1; to charge nothing use "+
				"/v1/peek, or /v1/cancel after /v1/reserve", headgate.MaxCost)
		}
		req.Cost = *cost
	}
	err := h.options.Identity.Normalize(req.Attributes)
	if err == nil {
		err = check.Validate(*req)
	}
	if err != nil {
		return check.Problemf(http.StatusBadRequest, "%v", err)
	}
	return nil
}

// span is a number of seconds, as far as a Duration can hold it.
func span(seconds float64) time.Duration {
	const most = 1e9
	return time.Duration(max(-most, min(seconds, most)) * float64(time.Second))
}

// tokenText is a reservation's token as text; "" if there is none.
func tokenText(token []byte) string { return base64.RawURLEncoding.EncodeToString(token) }

func tokenOf(text string) ([]byte, error) {
	token, err := base64.RawURLEncoding.DecodeString(text)
	switch {
	case text == "":
		return nil, check.Problemf(http.StatusBadRequest,
			"reservation is missing: send what /v1/reserve answered; if it answered none there is nothing to do")
	case err != nil:
		return nil, headgate.ErrInvalidToken
	}
	return token, nil
}
