package identity

import (
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate"
)

// maxMethod is longer than any method there is.
const maxMethod = 32

// overrides are the headers in which a POST can say that it stands for another method.
var overrides = [...]string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// overrideAttributes are the attributes of these headers.
var overrideAttributes = func() (names [len(overrides)]string) {
	for i, header := range overrides {
		names[i] = "header." + strings.ToLower(header)
	}
	return names
}()

// methods are the two readings of a method. A HEAD runs the handler of GET. A POST may be another method to a framework
// that honours an override, in a header or in the query parameter _method; the second reading is empty if there is none,
// and any method if there are several that differ: nobody knows which one counts. An override in a form is not seen:
// bodies are not read.
func methods(r *http.Request) (method, other string) {
	if method = upperMethod(r.Method); method == "" {
		method = http.MethodGet // as net/http has it
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

// override is the method that a POST stands for.
type override struct{ method string }

func (o *override) note(value string) {
	switch value = overridden(value); {
	case value == "" || value == o.method:
	case o.method == "":
		o.method = value
	default:
		o.method = headgate.AnyMethod
	}
}

// list notes the values of a header.
func (o *override) list(line string) {
	for value := range strings.SplitSeq(line, ",") {
		o.note(value)
	}
}

func (o *override) query(query string) {
	for value := range parameters(query, "_method") {
		o.note(value)
	}
}

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

func upperMethod(method string) string {
	if method = strings.ToUpper(cut(strings.TrimSpace(method), maxMethod)); method == http.MethodHead {
		return http.MethodGet
	}
	return method
}

// parameters yields the values of a query parameter. The name may be encoded. What follows a "#" is no part of a query, although some
// servers pass it on.
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

// hostname is a host in lower case, without its port, brackets and final dot.
func hostname(host string) string {
	if strings.HasPrefix(host, "[") {
		host, _, _ = strings.Cut(host[1:], "]")
	} else if i := strings.IndexByte(host, ':'); i >= 0 && i == strings.LastIndexByte(host, ':') {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimRight(host, "."))
}

// routeOf is the path of a pattern of http.ServeMux: /users/{id} of "GET example.com/users/{id}".
func routeOf(pattern string) string {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		return pattern[i:]
	}
	return ""
}
