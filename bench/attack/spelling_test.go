package attack

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// spelling is a request as a client that tries to evade a rule might write it.
type spelling struct {
	line    string
	headers []string
}

func (s spelling) String() string { return fmt.Sprintf("%q %q", s.line, s.headers) }

// provedSpellings returns spellings that once evaded a rule, and similar ones.
func provedSpellings() []spelling {
	spellings := []spelling{
		{"POST /orders", []string{"X-HTTP-Method-Override: GET"}},
		{"POST /orders?_method=GET", nil},
		{"POST /orders", []string{"X-HTTP-Method-Override: GET", "X-Method-Override: DELETE"}},
		{"CONNECT host/login", nil},
		{"CONNECT host/x/../login", nil},
		{"CONNECT http://host/login", nil},
	}
	for _, target := range []string{
		"/api%2Fsearch/x;/..;/..;/..;/y", "/api%2Fsearch/..%5C..%5C..%5Cy", "/api/search/../../y", "/api/search/x/../../../y",
		"/static/..;/login", "/static/%2e%2e%2Flogin", "/static/../login", "/static/%2e%2e/login", "/static/..%5Clogin",
		"/users/..", "/users/%2e%2e", "/users/.", "/users/%2E", "/users//posts/x", "/users/7/posts//", "/users/x%2fy/posts/..",
		"/%75sers/x%2fy/posts/%2e%2e", "/x#/../login", "/x%23/../login", "/x%3f%2f../login", "/x%00/../login", "/x/..;a/login",
		"/x%3f/..;/..;/login", "/a%2fb/..;/login", "//host/../login", "//host/login", `/\host/login`, `/x\..\login`, "/x//../login",
		"/x//..//login", "x:/login", "http:/login", "http://host/login", "HTTP://host:80/x/../login", "http:login", "/login%20", "/login.",
		"/login;x", "/login%3bx", "/login%00", "/login/", "/login//", "/LOGIN", "/%4cogin", "/%254cogin", "/login%c0%afx", "/login%2f",
		"*", "/*", "/static/a/../../login", "/static/%252e%252e/login", "/static/.%2e/login", "/static/%2e./login", "/./login",
		"/x%5cw%3f%2f/y;%2f..%2f../login", "/q%2f..%2fapi%2fsearch%2f%2f..%2fx", "/api//search///..//x", `/api//search\//..//x`,
		"/q%5c..%2fapi%2fsearch%2f%2f..%2fx", "/q%5c..%2fapi%2f/search%2f%2f..%2f/x",
		"/q%5cw%2f..%2fapi%2fsearch%2f%2f..%2fx", "/r%2fs/../api//search///..//x", "/r%2fs/..;/api//search///..//x",
		"/static/..%2flogin", "/static/..%252flogin", "/orders/..%2f..%2flogin", "/healthz/..;/login", "/healthz%2f..%2flogin",
	} {
		spellings = append(spellings, spelling{"GET " + target, nil})
	}
	return spellings
}

// speller generates random spellings, deterministically by its seed.
type speller struct {
	*rand.Rand
}

func newSpeller(seed uint64) speller { return speller{rand.New(rand.NewPCG(seed, 7))} }

func (s speller) of(list ...string) string { return list[s.IntN(len(list))] }

// perhaps returns an element of the list with a probability of 1/odds, otherwise "".
func (s speller) perhaps(odds int, list ...string) string {
	if s.IntN(odds) > 0 {
		return ""
	}
	return s.of(list...)
}

// request generates one spelling. The odds determine how unusual its parts are.
func (s speller) request() spelling {
	odds := []int{2, 4, 8, 20}[s.IntN(4)]
	var path strings.Builder
	path.WriteString(s.front(odds))
	for segment := range strings.SplitSeq(s.of(
		"login", "LOGIN", "api/search/x", "api/search", "users/7", "users/me", "users/7/posts/9", "static/a.js", "static/a/b", "orders",
		"orders/7", "files/a.txt", "healthz", "", "api", "users",
	), "/") {
		path.WriteString(s.separator(odds) + s.segment(odds, segment))
	}
	target := path.String()
	if !strings.HasPrefix(target, "/") && !strings.Contains(target, ":") {
		target = "/" + target
	}
	target += s.perhaps(odds/2+1, "/", "//", "/.", "/..", "/../", "/..;/..;/y", `/..\..\y`, "/..%5C..%5C..%5Cy", "%00", ";x", "/%2e%2e/y", "/../../y",
		"/../../../y", "%2f", "%2F..%2F..%2Fy", "/..%2f..%2fy", "%20", ".", "%3fx", "%23x", "#x", "/..;x=1/y", "/.%2e/..", "/x/../..", "/x%2f..")
	target += s.perhaps(6, "?x=1", "?_method=GET", "?_method=DELETE", "?_method=GET&_method=PUT", "?/../login")
	return spelling{s.method() + " " + target, s.overrides()}
}

func (s speller) front(odds int) string {
	return s.perhaps(odds, "/..", "//host", "/x/..", "/static/..;", "/static/%2e%2e", "/static/..", `/static/..\`, "/static/..%5c", "/static/..%2f",
		"/api%2Fsearch/..%5C..", "/healthz/..", "/healthz/..;", "/healthz/..%2f", "http://host", "x:", "HTTP://h:80", "/users/x%2fy/..",
		"/api/search/x%3f%2f..%2f..%2f..", "/x%00/..", "/x#/..", "/x%23/..", "/x%253f/..", "/x%2fy/..;", "/;/..", "/;", "/%2e", "///", "/x//..",
		"/api/search/../..", "/files/..%252f", "/.;", "/orders/..;/")
}

func (s speller) separator(odds int) string {
	if s.IntN(odds) > 0 {
		return "/"
	}
	return s.of("//", "/./", "/%2e/", "%2F", "%2f", "%252F", "%5C", `\`, "/;/", "/x/../", "/x/%2e%2e/", "/x/..;/", "/x/..;a=1/", "/x%2f../",
		"/x%2F..%2F", "/..;/", "/.;/", "/%00/", "/%3f/", "/%23/", "/x%3b/../", `/x\..\`, "/x%5c..%5c", "/x//../", "//x/..//", "/.%2e/", "%2f%2e%2e%2f")
}

func (s speller) segment(odds int, text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		switch {
		case s.IntN(3*odds) > 0:
			b.WriteByte(c)
		case c >= 'a' && c <= 'z' && s.IntN(3) == 0:
			b.WriteByte(c - 'a' + 'A')
		case s.IntN(3) == 0:
			fmt.Fprintf(&b, "%%25%02x", c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	b.WriteString(s.perhaps(3*odds, ";p=1", ";", "%3Bp", ".", "..", "%00", "%3fx", "%23x", "#x", "%20", "%c0%af", "%e0%80%af", "%2f", "%5c", ";/..", "%", "%2"))
	return b.String()
}

func (s speller) method() string {
	return s.of("GET", "GET", "GET", "HEAD", "POST", "POST", "POST", "DELETE", "PUT", "OPTIONS")
}

func (s speller) overrides() []string {
	var headers []string
	for s.IntN(4) == 0 {
		name := s.of("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x-http-method-override")
		headers = append(headers, name+": "+s.of("GET", "get", "HEAD", "POST", "PUT", "DELETE", "DELETE, GET"))
	}
	return headers
}

// corpus returns the fixed spellings and n generated ones.
func corpus(seed uint64, n int) []spelling {
	s := newSpeller(seed)
	spellings := provedSpellings()
	for range n {
		spellings = append(spellings, s.request())
	}
	return spellings
}
