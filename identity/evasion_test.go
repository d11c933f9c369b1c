package identity_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/memstore"
)

// TestEvasions sends requests as an attacker would write them and checks which rules match: another spelling of a request must not
// escape a rule.
func TestEvasions(t *testing.T) {
	t.Parallel()
	who := resolver(t, identity.Options{APIKey: identity.APIKey{Header: "X-API-Key"}})
	rules := map[string]headgate.Rule{
		"login":  {Match: headgate.Match{Path: "/api/login", Method: "POST"}},
		"user":   {Match: headgate.Match{Path: "/users/{id}"}},
		"files":  {Match: headgate.Match{Path: "/files/**"}},
		"nocase": {Match: headgate.Match{Path: "/Admin/Panel", IgnoreCase: true}},
		"delete": {Match: headgate.Match{Path: "/users/{id}", Method: "DELETE"}},
		"read":   {Match: headgate.Match{Path: "/report", Method: "GET"}},
		"root":   {Match: headgate.Match{Path: "/"}},
	}
	var list []headgate.Rule
	for id, r := range rules {
		r.ID, r.By, r.Limit = id, headgate.Global, headgate.PerDay(1000)
		list = append(list, r)
	}
	limiter, err := headgate.New(memstore.New(memstore.Options{}), list...)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ request, rule string }{
		{"POST /api/login", "login"},
		{"POST /api/login?x=1", "login"},
		{"POST http://elsewhere/api/login", "login"},
		{"POST //api///login", "login"},
		{"POST /./api/./login", "login"},
		{"POST /x/../api/login", "login"},
		{"POST /../../api/login", "login"},
		{"POST /api/x/%2e%2e/login", "login"},
		{"POST /api/%2e/login", "login"},
		{"POST /api%2flogin", "login"},
		{"POST /api%2Flogin", "login"},
		{"POST /api%252flogin", "login"},
		{"POST /api%25252flogin", "login"},
		{"POST /%61pi/logi%6e", "login"},
		{"POST /api/login/", "login"},
		{"POST /api/login//", "login"},
		{"POST /api/login/.", "login"},
		{"POST /api/login;x=1", "login"},
		{"POST /api;a=b/login;jsessionid=1;c", "login"},
		{"POST /x/..;/api/login", "login"},
		{`POST /api\login`, "login"},
		{"POST /api%5clogin", "login"},
		{"POST /api/login%00", "login"},
		{"POST /api/login%00.png", "login"},
		{"POST /api/login%3fx", "login"},
		{"POST /api/login%23x", "login"},
		{"POST /x%2f..%2fapi%2flogin", "login"},

		{"GET /users/7", "user"},
		{"GET /users/a%2fb", "user"},
		{"GET /users/a%252fb", "user"},
		{"GET /users/a%5cb", "user"},
		{"GET /users/;x=1", "user"},
		{"GET /users/..;", "user"},
		{"GET /users/%2561", "user"},
		{"GET /users/" + strings.Repeat("x", 5000), "user"},
		{"GET /files/" + strings.Repeat("x/", 3000), "files"},
		{"GET /files", "files"},
		{"GET /files%2f..%2ffiles%2fa", "files"},

		{"GET /ADMIN/panel", "nocase"},
		{"GET /admin%2FPANEL/", "nocase"},

		{"DELETE /users/7", "delete"},
		{"POST /users/7\nX-HTTP-Method-Override: DELETE", "delete"},
		{"POST /users/7\nX-HTTP-Method-Override: delete", "delete"},
		{"POST /users/7\nX-Method-Override: PUT, DELETE", "delete"},
		{"POST /users/7\nX-HTTP-Method: PUT\nX-Method-Override: DELETE", "delete"},
		{"POST /users/7?_method=DELETE", "delete"},
		{"HEAD /report", "read"},
		{"GET /", "root"},
		{"GET /..", "root"},
		{"GET /%2e%2e%2f", "root"},
	}
	for _, test := range tests {
		r := parseRequest(t, test.request)
		attributes := who.Attributes(r)
		e, err := limiter.Explain(t.Context(), headgate.Request{Attributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		caught := false
		for _, l := range e.Decision.Limits {
			caught = caught || l.Rule == test.rule
		}
		if !caught {
			t.Errorf("%q is read as %q or %q and escapes %s", test.request, attributes["path"], attributes[headgate.OtherPath], test.rule)
		}
	}
	// Different requests stay different.
	for _, request := range []string{"GET /api/login", "POST /api/login/x", "POST /api/loginx", "POST /api/Login", "POST /apilogin"} {
		e, err := limiter.Explain(t.Context(), headgate.Request{Attributes: who.Attributes(parseRequest(t, request))})
		if err != nil || len(e.Decision.Limits) != 0 {
			t.Errorf("%q is matched by %v", request, e.Decision.Limits)
		}
	}
}

// TestOneClient counts subjects: parts of a request that a client can vary freely must not create new subjects.
func TestOneClient(t *testing.T) {
	t.Parallel()
	who := resolver(t, identity.Options{
		APIKey:         identity.APIKey{Header: "X-API-Key"},
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	limiter, err := headgate.New(memstore.New(memstore.Options{}),
		headgate.Rule{ID: "by-ip", By: []string{"ip"}, Limit: headgate.PerDay(1000)},
		headgate.Rule{ID: "by-user", By: []string{"user"}, Limit: headgate.PerDay(1000)},
		headgate.Rule{ID: "by-path", By: []string{"path"}, Limit: headgate.PerDay(1000)},
		headgate.Rule{ID: "by-key", By: []string{"api_key"}, Limit: headgate.PerDay(1000)},
	)
	if err != nil {
		t.Fatal(err)
	}
	// subjects counts the distinct subjects of a rule in these requests.
	subjects := func(rule string, n int, request func(i int) *http.Request) int {
		seen := map[headgate.Subject]bool{}
		for i := range n {
			d, _ := limiter.Check(t.Context(), headgate.Request{Attributes: who.Attributes(request(i))})
			for _, l := range d.Limits {
				if l.Rule == rule {
					seen[l.Subject] = true
				}
			}
		}
		return len(seen)
	}
	from := func(peer, lines string, values ...any) *http.Request {
		r := parseRequest(t, "GET /\n"+fmt.Sprintf(lines, values...))
		r.RemoteAddr = peer
		return r
	}
	if n := subjects("by-ip", 200, func(i int) *http.Request { return from("192.0.2.1:1234", "X-Forwarded-For: 198.51.100.%d", i) }); n != 1 {
		t.Errorf("200 rotating X-Forwarded-For of a peer that is not trusted are %d subjects", n)
	}
	if n := subjects("by-ip", 200, func(i int) *http.Request {
		return from("10.0.0.1:1234", "X-Forwarded-For: 198.51.100.%d, 192.0.2.1, 10.0.0.2", i)
	}); n != 1 {
		t.Errorf("200 made-up first hops before a trusted proxy are %d subjects", n)
	}
	if n := subjects("by-ip", 200, func(i int) *http.Request {
		return from("10.0.0.1:1234", "X-Forwarded-For: 198.51.100.%d, 10.0.0.2", i)
	}); n != 200 {
		t.Errorf("200 clients behind trusted proxies are %d subjects", n)
	}
	if n := subjects("by-user", 200, func(i int) *http.Request { return from("192.0.2.1:1234", "X-User-Id: %d", i) }); n != 1 {
		t.Errorf("200 made-up users of a peer that is not trusted are %d subjects", n)
	}
	if n := subjects("by-key", 200, func(i int) *http.Request { return from("192.0.2.1:1", "X-API-Key: a\nX-API-Key: %d", i) }); n != 1 {
		t.Errorf("200 requests with two keys each are %d subjects", n)
	}
	spellings := []string{"/a/b", "/a//b", "/a/./b", "/a/b/", "/a%2fb", "/a/b;x=%d", "/x%d/../a/b", "/a/b?c=%d"}
	if n := subjects("by-path", 200, func(i int) *http.Request {
		return parseRequest(t, "GET "+strings.ReplaceAll(spellings[i%len(spellings)], "%d", strconv.Itoa(i)))
	}); n != 1 {
		t.Errorf("one path in %d spellings is %d subjects", len(spellings), n)
	}
}

// parseRequest parses a request as a server does, from its line and headers.
func parseRequest(t *testing.T, text string) *http.Request {
	t.Helper()
	line, headers, _ := strings.Cut(text, "\n")
	method, target, _ := strings.Cut(line, " ")
	raw := method + " " + target + " HTTP/1.1\r\nHost: api.example.com\r\n"
	if headers != "" {
		raw += strings.ReplaceAll(headers, "\n", "\r\n") + "\r\n"
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw + "\r\n")))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	r.RemoteAddr = "192.0.2.1:1234"
	return r
}
