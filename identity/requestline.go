package identity

import (
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate"
)

// maxMethod is longer than any registered method.
const maxMethod = 32

// overrides are the headers in which a POST can override its method.
var overrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// overrideAttributes are the attributes of these headers.
var overrideAttributes = func() (names [len(overrides)]string) {
	for i, header := range overrides {
		names[i] = "header." + strings.ToLower(header)
	}
	return names
}()

// methods returns the two readings of a method. A HEAD counts as GET, whose handler it runs. A POST may be another method to a
// framework that honours an override, in a header or in the query parameter _method. The second reading is empty without an
// override, and headgate.AnyMethod if several overrides differ, because frameworks choose differently. An override in a form is not
// seen, because bodies are not read.
func methods(r *http.Request) (method, other string) {
	if method = upperMethod(r.Method); method == "" {
		method = http.MethodGet // the default of net/http
	}
	if method != http.MethodPost {
		return method, ""
	}
	var o override
	for _, name := range overrides {
		for _, line := range r.Header[name] {
			o.list(line)
		}
	}
	if r.URL != nil {
		o.query(r.URL.RawQuery)
	}
	return method, o.method
}

// override collects the method that overrides a POST.
type override struct{ method string }

// add adds one value of an override.
func (o *override) add(value string) {
	switch value = overridden(value); {
	case value == "" || value == o.method:
	case o.method == "":
		o.method = value
	default:
		o.method = headgate.AnyMethod
	}
}

// list adds the values of a header line.
func (o *override) list(line string) {
	for value := range strings.SplitSeq(line, ",") {
		o.add(value)
	}
}

// query adds the values of the query parameter _method.
func (o *override) query(query string) {
	for value := range parameters(query, "_method") {
		o.add(value)
	}
}

// overridden returns the normal form of an override, or "" if it is invalid or POST itself.
func overridden(value string) string {
	value = upperMethod(value)
	for i := range len(value) {
		if (value[i] < 'A' || value[i] > 'Z') && value[i] != '-' {
			return ""
		}
	}
	if value == http.MethodPost {
		return ""
	}
	return value
}

// upperMethod returns a method in upper case, with GET for HEAD.
func upperMethod(method string) string {
	if method = strings.ToUpper(cut(strings.TrimSpace(method), maxMethod)); method == http.MethodHead {
		return http.MethodGet
	}
	return method
}

// parameters yields the values of a query parameter. The name may be encoded. Text after a "#" does not belong to the query,
// although some servers pass it on.
func parameters(query, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		query, _, _ := strings.Cut(query, "#")
		for query != "" {
			var pair string
			pair, query, _ = strings.Cut(query, "&")
			key, value, _ := strings.Cut(pair, "=")
			if key, err := url.QueryUnescape(key); err != nil || key != name {
				continue
			}
			if decoded, err := url.QueryUnescape(value); err == nil {
				value = decoded
			}
			if !yield(value) {
				return
			}
		}
	}
}

// hostname returns a host in lower case, without its port, brackets and final dot.
func hostname(host string) string {
	if strings.HasPrefix(host, "[") {
		host, _, _ = strings.Cut(host[1:], "]")
	} else if i := strings.IndexByte(host, ':'); i >= 0 && i == strings.LastIndexByte(host, ':') {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimRight(host, "."))
}

// routeOf returns the path of an http.ServeMux pattern: /users/{id} of "GET example.com/users/{id}".
func routeOf(pattern string) string {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		return pattern[i:]
	}
	return ""
}
