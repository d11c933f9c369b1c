package identity

import (
	"net/http"
	"net/netip"
	"strings"
)

// field is a header's name in the spelling of gRPC (lower) and of net/http (canonical).
type field struct{ lower, canonical string }

func newField(name string) field {
	return field{lower: strings.ToLower(name), canonical: http.CanonicalHeaderKey(name)}
}

// call is the common form of an HTTP request and a gRPC call.
type call struct {
	header    map[string][]string
	canonical bool // header names are canonical (X-Like-This), as in net/http
	query     string
	peer      netip.Addr // invalid if the peer has no address
}

// lines returns the lines of a header.
func (c *call) lines(f field) []string {
	if c.canonical {
		return c.header[f.canonical]
	}
	return c.header[f.lower]
}

// value returns the value of a header, or "" if its lines differ.
func (c *call) value(f field) string {
	return agreed(c.lines(f))
}

// cookie returns the value of a cookie, or "" if several cookies of that name differ.
func (c *call) cookie(name string) string {
	request := http.Request{Header: http.Header{"Cookie": c.lines(cookieField)}}
	var values []string
	for _, cookie := range request.CookiesNamed(name) {
		values = append(values, cookie.Value)
	}
	return agreed(values)
}

// agreed returns the common value of all values, or "" if they differ.
func agreed(values []string) string {
	agreed := ""
	for i, value := range values {
		value = strings.TrimSpace(value)
		if i > 0 && value != agreed {
			return ""
		}
		agreed = value
	}
	return agreed
}

// bearer returns the bearer token of an Authorization header, or "".
func bearer(line string) string {
	scheme, token, _ := strings.Cut(line, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
