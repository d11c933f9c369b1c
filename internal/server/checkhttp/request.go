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

// Types of members, in messages.
const (
	attributesType = "an object of strings"
	tokenType      = "a string"
	secondsType    = "a number of seconds"
	booleanType    = "true or false"
	requestType    = "an object with a cost or attributes"
)

// member is a known member of an object.
type member struct {
	name string
	into any
	kind string // type of the value, for messages
}

// bound is the maximum number of items in an object.
type bound struct {
	maxItems int
	of       string
}

var (
	request = bound{check.MaxAttributes, "attributes"}
	batch   = bound{check.MaxBatch, "requests"}
	slots   = bound{check.MaxBatch, "slots"}
)

// decode reads an object. Names of members are case-sensitive; null is the same as a missing member.
func decode(body []byte, within bound, members ...member) error {
	bad := func(format string, args ...any) error { return check.Problemf(http.StatusBadRequest, format, args...) }
	switch n, items := countItems(body); {
	case n > maxMembers:
		return bad("%d members: send each member once", n)
	case items > within.maxItems:
		return bad("%d %s: send at most %d", items, within.of, within.maxItems)
	}
	if !utf8.Valid(body) {
		return bad("the body is not UTF-8, which JSON requires")
	}
	var given map[string]json.RawMessage
	var syntax *json.SyntaxError
	switch err := json.Unmarshal(body, &given); {
	case errors.As(err, &syntax):
		return bad("the body is not JSON: %v after %d bytes", err, syntax.Offset)
	case given == nil:
		return bad("the body is not an object: send one, which may be empty: {}")
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
			if m.name == "attributes" { // the value may contain secrets
				return bad("%s is not %s", m.name, m.kind)
			}
			return bad("%s is not %s: it is %.100s", m.name, m.kind, value)
		}
	}
	if len(given) > 0 {
		unknown := slices.Sorted(maps.Keys(given))
		return bad("unknown member %s: send %s", quoted(unknown), strings.Join(names, ", "))
	}
	return nil
}

// maxMembers is more than any known object has.
const maxMembers = 32

// countItems returns the number of members of a document, and the number of members and items in their values. It is called
// before the document is decoded: decoded, they take up to a hundred times the memory. For invalid JSON the counts have no
// meaning.
func countItems(body []byte) (members, items int) {
	level, text := 0, false
	empty := false // whether the innermost list or object is empty so far
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

// quoted lists unknown names, up to maxNames.
func quoted(names []string) string {
	const maxNames = 5
	var b strings.Builder
	for i, name := range names[:min(len(names), maxNames)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%.100q", name)
	}
	if len(names) > maxNames {
		fmt.Fprintf(&b, " and %d more", len(names)-maxNames)
	}
	return b.String()
}

// readRequest reads a request with the given additional members. The returned context is part of the trace that the request
// names.
func (h *handler) readRequest(ctx context.Context, body []byte, more ...member) (context.Context, headgate.Request, error) {
	var req headgate.Request
	var parent string
	members := []member{
		{"attributes", &req.Attributes, attributesType}, {"rule", &req.Rule, "a string"}, {"traceparent", &parent, "a string"},
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
		// An explicit 0 is rejected: the caller does not mean 1.
		if *cost == 0 {
			return check.Problemf(http.StatusBadRequest, "cost 0: must be 1 to %d, or omitted for 1; to charge nothing, use "+
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

// holdOf returns the duration of a reservation.
func holdOf(seconds float64) (time.Duration, error) {
	hold := span(seconds)
	if err := check.ValidateHold(hold); err != nil {
		return 0, check.Problemf(http.StatusBadRequest, "hold: %v", err)
	}
	return hold, nil
}

// part returns an object within a body, which may be missing.
func part(body json.RawMessage) []byte {
	if body == nil || string(body) == "null" {
		return []byte("{}")
	}
	return body
}

// inMember adds the name of a member to the problem in its value.
func inMember(name string, err error) error {
	var p *check.Problem
	if errors.As(err, &p) {
		return check.Problemf(p.Status, "%s: %s", name, p.Detail)
	}
	return err
}

// span converts seconds to a Duration, clamped to its range.
func span(seconds float64) time.Duration {
	const maxSeconds = 1e9
	return time.Duration(max(-maxSeconds, min(seconds, maxSeconds)) * float64(time.Second))
}

// tokenText returns the token of a reservation or of slots as text, or "" if there is none.
func tokenText(token []byte) string { return base64.RawURLEncoding.EncodeToString(token) }

// slotsOf returns the slots of a text. Text that is not of this API has slots that no server knows.
func slotsOf(text string) []byte {
	token, _ := base64.RawURLEncoding.DecodeString(text)
	return token
}

func tokenOf(text string) ([]byte, error) {
	token, err := base64.RawURLEncoding.DecodeString(text)
	switch {
	case text == "":
		return nil, check.Problemf(http.StatusBadRequest,
			"reservation: required: send the one of /v1/reserve; if it returned none, no call is needed")
	case err != nil:
		return nil, headgate.ErrInvalidToken
	}
	return token, nil
}
