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

// onlyKnown refuses parameters that nobody looks at: a misspelt filter would show everything.
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

// readPage is the part of a list that a request asks for, and one more, by which answerPage knows whether there are more.
func readPage(r *http.Request, filters ...string) (page pgrules.Page, q url.Values, err error) {
	q = r.URL.Query()
	if err := onlyKnown(q, append(filters, "limit", "cursor")...); err != nil {
		return page, q, err
	}
	most, err := readNumber(q, "limit", usualPage, 1, largestPage)
	if err != nil {
		return page, q, err
	}
	page.Most = int32(most) + 1
	if text := q.Get("cursor"); text != "" {
		number, err := base64.RawURLEncoding.DecodeString(text)
		if err == nil {
			page.After, err = strconv.ParseInt(string(number), 10, 64)
		}
		if err != nil {
			return page, q, badRequest("the cursor is none: send what was in next, with the same filters")
		}
	}
	return page, q, nil
}

// answerPage answers with a page without the one more, and the cursor of the next page if there is one.
func answerPage[T any](w http.ResponseWriter, page pgrules.Page, name string, all []T, id func(*T) int64) error {
	body := map[string]any{}
	if len(all) >= int(page.Most) {
		all = all[:page.Most-1]
		body["next"] = base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, id(&all[len(all)-1]), 10))
	}
	body[name] = append([]T{}, all...) // never null
	return answer(w, http.StatusOK, body)
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
func pathNumber(r *http.Request, name string) (int64, error) {
	n, err := strconv.ParseInt(r.PathValue(name), 10, 64)
	if err != nil {
		return 0, notFound("there is no %q: it is a number", r.PathValue(name))
	}
	return n, nil
}
