package identity

import (
	"net/http"
	"net/netip"
	"strings"
)

// field is a header's name as either protocol spells it.
type field struct{ lower, canonical string }

func newField(name string) field {
	return field{lower: strings.ToLower(name), canonical: http.CanonicalHeaderKey(name)}
}

// call is what a request of net/http and a call of gRPC have in common.
type call struct {
	header    map[string][]string
	canonical bool // names are spelled X-Like-This, as in net/http
	query     string
	peer      netip.Addr // not valid if the peer has no address
}

func (c *call) lines(f field) []string {
	if c.canonical {
		return c.header[f.canonical]
	}
	return c.header[f.lower]
}

// value is what all lines of a header agree on, or "".
func (c *call) value(f field) string {
	return agreed(c.lines(f))
}

// cookie is what all cookies of a name agree on, or "".
func (c *call) cookie(name string) string {
	request := http.Request{Header: http.Header{"Cookie": c.lines(cookieField)}}
	var values []string
	for _, cookie := range request.CookiesNamed(name) {
		values = append(values, cookie.Value)
	}
	return agreed(values)
}

// agreed is the value that all are, or "".
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

// bearer is the token of an Authorization header, or "".
func bearer(line string) string {
	scheme, token, _ := strings.Cut(line, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
