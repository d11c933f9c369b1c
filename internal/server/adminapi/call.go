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
	usualPage   = 100
	largestPage = 500
)

// call is a request to an endpoint, by a caller who may use it.
type call struct {
	*http.Request
	w  http.ResponseWriter
	by Caller
}

// created is the answer of an endpoint that has made something, and where that is.
type created struct {
	at    string
	value any
}

// written is the answer of an endpoint that has written it by itself.
type written struct{}

// answer writes what an endpoint answers with: nil is nothing.
func (c *call) answer(value any) {
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

// list answers with the part of a list that a call asks for, and the cursor of the next part if there is one. find is asked for one
// more than is wanted, and gets the filters, which are the only other parameters that there may be.
func list[T any](
	c *call, name string, id func(*T) int64, filters []string, find func(url.Values, pgrules.Page) ([]T, error),
) (any, error) {
	q := c.URL.Query()
	if err := onlyKnown(q, append(filters, "limit", "cursor")...); err != nil {
		return nil, err
	}
	most, err := readNumber(q, "limit", usualPage, 1, largestPage)
	if err != nil {
		return nil, err
	}
	page := pgrules.Page{Limit: int32(most) + 1}
	if text := q.Get("cursor"); text != "" {
		number, err := base64.RawURLEncoding.DecodeString(text)
		if err == nil {
			page.After, err = strconv.ParseInt(string(number), 10, 64)
		}
		if err != nil {
			return nil, badRequest("the cursor is none: send what was in next, with the same filters")
		}
	}
	all, err := find(q, page)
	if err != nil {
		return nil, err
	}
	body := map[string]any{}
	if len(all) > most {
		all = all[:most]
		body["next"] = base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, id(&all[most-1]), 10))
	}
	body[name] = append([]T{}, all...) // never null
	return body, nil
}

// onlyKnown denies parameters that nobody looks at: a misspelt filter would show everything.
func onlyKnown(q url.Values, names ...string) error {
	for name := range q {
		if !slices.Contains(names, name) {
			return badRequest("there is no parameter %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// readNumber reads a parameter that is a number within bounds.
func readNumber(q url.Values, name string, usual, least, most int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, badRequest("%s is %q: send %d to %d", name, text, least, most)
	}
	return n, nil
}

// readPairs reads a parameter that is NAME=VALUE, each time that it is there; nil if it is not.
func readPairs(q url.Values, name string) (pairs headgate.Attributes, err error) {
	for _, pair := range q[name] {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || value == "" {
			return nil, badRequest("%s is %q: send NAME=VALUE, and %s again for each attribute", name, pair, name)
		}
		if pairs == nil {
			pairs = headgate.Attributes{}
		}
		pairs[key] = value
	}
	return pairs, nil
}

// pathNumber is a number in the path.
func (c *call) pathNumber(name string) (int64, error) {
	n, err := strconv.ParseInt(c.PathValue(name), 10, 64)
	if err != nil {
		return 0, notFound("there is no %q: it is a number", c.PathValue(name))
	}
	return n, nil
}
