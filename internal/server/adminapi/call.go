package adminapi

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/pgrules"
)

const (
	defaultPage = 100
	maxPage     = 500
)

// call is a request to an endpoint, by a caller that may use it.
type call struct {
	*http.Request
	w  http.ResponseWriter
	by Caller
}

// created is the result of an endpoint that has created an object, with the object's location.
type created struct {
	at    string
	value any
}

// written is the result of an endpoint that has written the response itself.
type written struct{}

// respond writes the result of an endpoint. nil is an empty response.
func (c *call) respond(value any) {
	switch v := value.(type) {
	case nil:
		c.w.WriteHeader(http.StatusNoContent)
	case written:
	case created:
		c.w.Header().Set("Location", v.at)
		writeJSON(c.w, http.StatusCreated, "application/json", v.value)
	default:
		writeJSON(c.w, http.StatusOK, "application/json", v)
	}
}

// list returns the page of a list that a call requests, with the cursor of the next page, if any. find gets the filters and a page with
// one item more than requested. Parameters other than the filters are rejected.
func list[T any](
	c *call, name string, id func(*T) int64, filters []string, find func(url.Values, pgrules.Page) ([]T, error),
) (any, error) {
	q := c.URL.Query()
	if err := rejectUnknown(q, append(filters, "limit", "cursor")...); err != nil {
		return nil, err
	}
	limit, err := readNumber(q, "limit", defaultPage, 1, maxPage)
	if err != nil {
		return nil, err
	}
	page := pgrules.Page{Limit: int32(limit) + 1}
	if text := q.Get("cursor"); text != "" {
		number, err := base64.RawURLEncoding.DecodeString(text)
		if err == nil {
			page.After, err = strconv.ParseInt(string(number), 10, 64)
		}
		if err != nil {
			return nil, badRequest("invalid cursor: send the next of the previous page, with the same filters")
		}
	}
	all, err := find(q, page)
	if err != nil {
		return nil, err
	}
	body := map[string]any{}
	if len(all) > limit {
		all = all[:limit]
		body["next"] = base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, id(&all[limit-1]), 10))
	}
	body[name] = append([]T{}, all...) // never null
	return body, nil
}

// rejectUnknown rejects unknown parameters, since a misspelt filter would list everything.
func rejectUnknown(q url.Values, names ...string) error {
	for name := range q {
		if !slices.Contains(names, name) {
			return badRequest("unknown parameter %q: known are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// readNumber reads a numeric parameter between two bounds.
func readNumber(q url.Values, name string, fallback, lowest, highest int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < lowest || n > highest {
		return 0, badRequest("%s %q: must be %d to %d", name, text, lowest, highest)
	}
	return n, nil
}

// readPairs reads all values of a parameter of the form NAME=VALUE. It returns nil if there are none.
func readPairs(q url.Values, name string) (pairs headgate.Attributes, err error) {
	for _, pair := range q[name] {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || value == "" {
			return nil, badRequest("%s %q: send NAME=VALUE, and repeat %s for each attribute", name, pair, name)
		}
		if pairs == nil {
			pairs = headgate.Attributes{}
		}
		pairs[key] = value
	}
	return pairs, nil
}

// pathNumber returns a number in the path.
func (c *call) pathNumber(name string) (int64, error) {
	n, err := strconv.ParseInt(c.PathValue(name), 10, 64)
	if err != nil {
		return 0, notFound("%s %q: not found: must be a number", name, c.PathValue(name))
	}
	return n, nil
}
