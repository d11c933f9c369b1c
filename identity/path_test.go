package identity_test

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
)

func TestPath(t *testing.T) {
	t.Parallel()
	tests := []struct{ raw, path, other string }{
		// Spellings that all servers interpret alike.
		{raw: "/login", path: "/login"},
		{raw: "/", path: "/"},
		{raw: "", path: "/"},
		{raw: "login", path: "/login"},
		{raw: "*", path: "/*"},
		{raw: "/Login", path: "/Login"},
		{raw: "/login/", path: "/login"},
		{raw: "/.well-known/x", path: "/.well-known/x"},
		{raw: "/a/...", path: "/a/..."},
		{raw: "/login?x=1", path: "/login"},
		{raw: "/login?a#b?c", path: "/login"},
		{raw: "?x", path: "/"},
		{raw: "/100%", path: "/100%"},
		{raw: "/%zz/%2", path: "/%zz/%2"},
		{raw: "/caf%C3%A9", path: "/café"},
		{raw: "/a%20b", path: "/a b"},

		// Some servers resolve dots and merge slashes.
		{raw: "/login///", path: "/login", other: "/login///"},
		{raw: "/api//login", path: "/api/login", other: "/api//login"},
		{raw: "/./login", path: "/login", other: "/./login"},
		{raw: "/api/x/../login", path: "/api/login", other: "/api/x/../login"},
		{raw: "/../../login", path: "/login", other: "/../../login"},
		{raw: "/login/..", path: "/", other: "/login/.."},
		{raw: "/a//../b", path: "/b", other: "/a//../b?/a/b"},
		// Some treat the text after two slashes as a host, or "#" as the end.
		{raw: "//login", path: "/login", other: "//login?/"},
		{raw: "//host/login", path: "/host/login", other: "//host/login?/login"},
		{raw: "/login#x", path: "/login", other: "/login%23x"},
		{raw: "/x#/../login", path: "/x", other: "/login?/x%23/../login"},
		// Some decode, once or until nothing is left.
		{raw: "/%6cogin", path: "/login", other: "/%6Cogin"},
		{raw: "/%256cogin", path: "/login", other: "/%6cogin"},
		{raw: "/%2525252525256cogin", path: "/login", other: "/%25252525256cogin"},
		{raw: "/%%36cogin", path: "/login", other: "/%6cogin?/%%36cogin"},
		{raw: "/api/x/%2e%2E/login", path: "/api/login", other: "/api/x/../login?/api/x/%2E%2E/login"},
		{raw: "/api/x/.%252e/login", path: "/api/login", other: "/api/x/.%2e/login"},
		// Some split before they decode.
		{raw: "/api%2flogin", path: "/api/login", other: "/api%2Flogin"},
		{raw: "/api%252Flogin", path: "/api/login", other: "/api%2Flogin"},
		{raw: "/users/a%2fb", path: "/users/a/b", other: "/users/a%2Fb"},
		{raw: "/a/..%2flogin", path: "/login", other: "/a/..%2Flogin?/a/../login"},
		{raw: "/x%2fy/%2e%2e/login", path: "/x/login", other: "/login?/x/y/../login?/x%2Fy/../login?/x%2Fy/%2E%2E/login"},
		// Some treat a backslash as a slash, or NUL as the end.
		{raw: `/api\login`, path: "/api/login", other: "/api%5Clogin"},
		{raw: "/api%5clogin", path: "/api/login", other: "/api%5Clogin"},
		{raw: `\login`, path: "/login", other: "/%5Clogin"},
		{raw: "/login\x00.png", path: "/login", other: "/login%00.png"},
		{raw: "/login%00/x", path: "/login", other: "/login%00/x"},
		{raw: "/x%00/../login", path: "/x", other: "/login?/x%00/../login"},
		{raw: "/login%3fx", path: "/login", other: "/login%3Fx"},
		{raw: "/login%23x", path: "/login", other: "/login%23x"},
		// Some drop parameters.
		{raw: "/login;x=1", path: "/login", other: "/login;x=1"},
		{raw: "/login%3bx=1", path: "/login", other: "/login;x=1?/login%3Bx=1"},
		{raw: "/a/..;/login", path: "/login", other: "/a/..;/login?/a/.."},
		{raw: "/a/..;x=1/login", path: "/login", other: "/a/..;/login?/a/..;x=1/login?/a/.."},
		{raw: "/users/;x/delete", path: "/users/delete", other: "/users/;/delete?/users/;x/delete?/users"},
		{raw: "/a%2fb/..;/login", path: "/a/login", other: "/a%2Fb/..;/login?/a/b/..;/login?/login?/a/b/.."},
		{raw: "/api%2Fsearch/x;/..;/..;/y", path: "/api/y", other: "/api%2Fsearch/x/..;/..;/y?/api/search/x;/..;/..;/y?/api%2Fsearch/x;/..;/..;/y?/y?/api/search/x"},
		// Some ignore trailing space and bytes that are not UTF-8.
		{raw: "/login%0a", path: "/login", other: "/login\n"},
		{raw: "/log%ffin", path: "/login", other: "/log\xffin"},
		{raw: "/login;/x", path: "/login/x", other: "/login;/x?/login"},
		{raw: "///files/../a", path: "/a", other: "///files/../a?///a?/files/../a"},
	}
	for _, test := range tests {
		if path, other := identity.Path(test.raw); path != test.path || other != test.other {
			t.Errorf("Path(%q) = %q, %q, want %q, %q", test.raw, path, other, test.path, test.other)
		}
	}
}

func TestPathIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3000)
	tests := map[string]struct {
		raw  string
		want func(path string) bool
	}{
		// A rule on /search/{text}/now must still match.
		"long segment": {"/search/" + long + "/now", func(path string) bool {
			return strings.HasPrefix(path, "/search/sha256:") && strings.HasSuffix(path, "/now") && strings.Count(path, "/") == 3
		}},
		"many segments": {"/api" + strings.Repeat("/xyz", 2000), func(path string) bool {
			return strings.HasPrefix(path, "/api/xyz/") && strings.HasSuffix(path, "/xyz") && len(path) > identity.MaxPath-4
		}},
		"long, but not for long": {"/" + long + "/../login", func(path string) bool { return path == "/login" }},
	}
	for name, test := range tests {
		if path, _ := identity.Path(test.raw); len(path) > identity.MaxPath || !test.want(path) {
			t.Errorf("%s: %q", name, path)
		}
	}
	one, _ := identity.Path("/" + long + "1")
	two, _ := identity.Path("/" + long + "2")
	if one == two {
		t.Errorf("two paths became one: %q", one)
	}
}

func TestPathOfRequest(t *testing.T) {
	t.Parallel()
	who := resolver(t, identity.Options{})
	tests := []struct{ method, uri, path string }{
		{uri: "/login?next=%2Fx", path: "/login"},
		{uri: "//login", path: "/login"},
		{uri: "http://example.com/login#x", path: "/login"},
		{uri: "http://example.com", path: "/"},
		{uri: "http://example.com?x", path: "/"},
		{uri: "/x://login", path: "/x:/login"},
		{uri: "x:/login", path: "/login"},
		{uri: "http:login", path: "/"},
		{method: http.MethodConnect, uri: "example.com:443", path: "/"},
		{method: http.MethodConnect, uri: "example.com:443/login", path: "/login"},
		{method: http.MethodConnect, uri: "/login", path: "/login"},
		{method: http.MethodOptions, uri: "*", path: "/*"},
	}
	for _, test := range tests {
		// An outer handler that rewrites the URL must not matter.
		r := &http.Request{Method: test.method, RequestURI: test.uri, URL: &url.URL{Path: "/rewritten"}}
		if got := who.Attributes(r)["path"]; got != test.path {
			t.Errorf("%s %s: path %q, want %q", test.method, test.uri, got, test.path)
		}
	}
	r := &http.Request{URL: &url.URL{Path: "/a/b", RawPath: "/a%2Fb"}}
	if got := who.Attributes(r); got["path"] != "/a/b" || got[headgate.OtherPath] != "/a%2Fb" {
		t.Errorf("request without a line: %v", got)
	}
}

func TestNormalPathDoesNotAllocate(t *testing.T) {
	for _, raw := range []string{"/", "/api/v1/users/4711", "/search?q=%2F&page=2", "/.well-known/x"} {
		if n := testing.AllocsPerRun(100, func() { identity.Path(raw) }); n != 0 {
			t.Errorf("Path(%q): %v allocations", raw, n)
		}
	}
}

func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"/a/b", "//", "/./..//x/", "/%2f%2e%252e/", `/\..\x`, "/a;b/..;/;", "/x\x00y", "/%25%32%66?#", "/%2%35%", "//h/../x#/../y", "/#",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		path, other := identity.Path(raw)
		checkNormal(t, raw, path)
		if again, more := identity.Path(path); again != path || more != "" && !strings.ContainsAny(path, "%") {
			t.Errorf("%q: %q becomes %q, %q", raw, path, again, more)
		}
		checkOthers(t, raw, path, other)
		// The encoding must not change the path.
		if len(path) < 500 {
			for encoded := path; len(encoded) < 10*len(path); {
				encoded = "/" + encode(encoded[1:])
				if again, _ := identity.Path(encoded); again != path {
					t.Errorf("%q: %q is %q, want %q", raw, encoded, again, path)
				}
				if path == "/" {
					break
				}
			}
		}
	})
}

func checkNormal(t *testing.T, raw, path string) {
	t.Helper()
	if !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || strings.ContainsAny(path, "\x00\\") ||
		len(path) > 1 && strings.HasSuffix(path, "/") || len(path) > identity.MaxPath {
		t.Errorf("%q: %q is not normal", raw, path)
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			t.Errorf("%q: %q has dot segments", raw, path)
		}
	}
}

// checkOthers checks the bounds of the other readings and that they are distinct.
func checkOthers(t *testing.T, raw, path, other string) {
	t.Helper()
	if other == "" {
		return
	}
	seen := map[string]bool{path: true}
	for reading := range strings.SplitSeq(other, "?") {
		if !strings.HasPrefix(reading, "/") || strings.ContainsAny(reading, "\x00\\#") || len(reading) > 254 {
			t.Errorf("%q: reading %q is not normal", raw, reading)
		}
		if seen[reading] {
			t.Errorf("%q: duplicate reading %q: %q and %q", raw, reading, path, other)
		}
		seen[reading] = true
	}
	if len(seen) > 27 || len(other) > 8<<10 {
		t.Errorf("%q: %d readings in %d bytes", raw, len(seen), len(other))
	}
}

func encode(text string) string {
	coded := hex.EncodeToString([]byte(text))
	var b strings.Builder
	for i := 0; i < len(coded); i += 2 {
		b.WriteString("%" + coded[i:i+2])
	}
	return b.String()
}
