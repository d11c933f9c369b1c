package identity_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
)

func TestAttributes(t *testing.T) {
	t.Parallel()
	who := resolver(t, identity.Options{})
	var got headgate.Attributes
	mux := http.NewServeMux()
	mux.HandleFunc("POST /users/{id}", func(_ http.ResponseWriter, r *http.Request) {
		got = who.Attributes(r, "header.x-rows", "cookie.theme", "claim.sub", "descriptor.x", "ip", "header.absent", "header.", "nonsense")
	})
	r := httptest.NewRequest(http.MethodPost, "/users/7?x=1", http.NoBody)
	r.Host = "API.example.com:8080"
	r.RemoteAddr = "192.0.2.1:4711"
	r.Header = http.Header{
		"User-Agent": {"legacy/1.0"}, "X-Rows": {" 12 "}, "Cookie": {"theme=dark; other=1"},
		"X-User-Id": {"eve"}, "X-Api-Key": {"k"}, "Authorization": {"Bearer k"},
	}
	mux.ServeHTTP(httptest.NewRecorder(), r)
	want := headgate.Attributes{
		"ip": "192.0.2.1", "method": "POST", "path": "/users/7", "route": "/users/{id}", "host": "api.example.com",
		"user_agent": "legacy/1.0", "header.x-rows": "12", "cookie.theme": "dark",
	}
	if !maps.Equal(got, want) {
		t.Errorf("attributes\n%v, want\n%v", got, want)
	}
	if got := who.Attributes(&http.Request{}); !maps.Equal(got, headgate.Attributes{"method": "GET", "path": "/"}) {
		t.Errorf("attributes of nothing: %v", got)
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	options := behindProxies
	options.APIKey.Header = "X-API-Key"
	options.Tenant = []string{"header.x-tenant"}
	who := resolver(t, options)
	metadata := map[string][]string{
		":authority": {"api.example.com:443"}, "user-agent": {"grpc-go/1.85"}, "x-forwarded-for": {"1.2.3.4, 198.51.100.7"},
		"x-api-key": {"k"}, "x-user-id": {"ada"}, "x-tenant": {"acme"}, "x-rows": {"12"}, "cookie": {"theme=dark"},
		"x-http-method-override": {"DELETE"},
	}
	proxy := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4711}
	got := who.Metadata(metadata, proxy, "/shop.Cart/Add", "header.x-rows", "cookie.theme")
	want := headgate.Attributes{
		"ip": "198.51.100.7", "method": "POST", "path": "/shop.Cart/Add", "host": "api.example.com",
		"user_agent": "grpc-go/1.85", "api_key": headgate.HashKey("k"), "user": "ada", "tenant": "acme",
		"header.x-rows": "12", "cookie.theme": "dark",
	}
	if !maps.Equal(got, want) {
		t.Errorf("attributes\n%v, want\n%v", got, want)
	}

	untrusted := &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 4711}
	got = who.Metadata(metadata, untrusted, "/shop.Cart/Add")
	if got["ip"] != "2001:db8::/64" || got["user"] != "" || got["tenant"] != "" {
		t.Errorf("attributes of an untrusted peer: %v", got)
	}
	for _, peer := range []net.Addr{nil, &net.UnixAddr{Name: "/run/x.sock", Net: "unix"}} {
		if got := who.Metadata(metadata, peer, "/shop.Cart/Add"); got["ip"] != "" || got["user"] != "" {
			t.Errorf("attributes of untrusted peer %v: %v", peer, got)
		}
	}
}

func TestMethod(t *testing.T) {
	t.Parallel()
	who := resolver(t, identity.Options{})
	type header = http.Header
	tests := map[string]struct {
		method, query string
		header        header
		want, other   string
	}{
		"plain":                       {method: "PATCH", want: "PATCH"},
		"lower case":                  {method: "post", want: "POST"},
		"HEAD runs GET":               {method: "HEAD", want: "GET"},
		"long":                        {method: strings.Repeat("X", 99), want: strings.Repeat("X", 32)},
		"override":                    {method: "POST", header: header{"X-Http-Method-Override": {"delete"}}, want: "POST", other: "DELETE"},
		"older override":              {method: "POST", header: header{"X-Http-Method": {"MERGE"}}, want: "POST", other: "MERGE"},
		"other override":              {method: "POST", header: header{"X-Method-Override": {" PUT "}}, want: "POST", other: "PUT"},
		"override in lower case POST": {method: "post", header: header{"X-Method-Override": {"PUT"}}, want: "POST", other: "PUT"},
		"override to HEAD":            {method: "POST", header: header{"X-Method-Override": {"HEAD"}}, want: "POST", other: "GET"},
		"override to the same":        {method: "POST", header: header{"X-Method-Override": {"post"}}, want: "POST"},
		"override of a GET":           {method: "GET", header: header{"X-Method-Override": {"PUT"}}, want: "GET"},
		"invalid override":            {method: "POST", header: header{"X-Method-Override": {"a b"}}, want: "POST"},
		"override in the query":       {method: "POST", query: "a=b&_method=PUT", want: "POST", other: "PUT"},
		"encoded in the query":        {method: "POST", query: "%5fmethod=P%55T", want: "POST", other: "PUT"},
		"several lines":               {method: "POST", header: header{"X-Http-Method-Override": {"DELETE", "PUT"}}, want: "POST", other: "*"},
		"several in a line":           {method: "POST", header: header{"X-Http-Method-Override": {"DELETE, PUT"}}, want: "POST", other: "*"},
		"several headers":             {method: "POST", header: header{"X-Http-Method": {"DELETE"}}, query: "_method=PUT", want: "POST", other: "*"},
		"several that agree":          {method: "POST", header: header{"X-Http-Method": {"PUT"}}, query: "_method=put", want: "POST", other: "PUT"},
		"behind nonsense": {
			method: "POST", header: header{"X-Http-Method-Override": {"", "?", "POST"}, "X-Method-Override": {"PUT"}},
			want: "POST", other: "PUT",
		},
	}
	for name, test := range tests {
		r := &http.Request{Method: test.method, Header: test.header, URL: &url.URL{RawQuery: test.query}}
		if got := who.Attributes(r); got["method"] != test.want || got[headgate.OtherMethod] != test.other {
			t.Errorf("%s: %q and %q, want %q and %q", name, got["method"], got[headgate.OtherMethod], test.want, test.other)
		}
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	who := resolver(t, identity.Options{})
	for host, want := range map[string]string{
		"example.com": "example.com", "Example.COM:8080": "example.com", "example.com.": "example.com", "example.com.:80": "example.com",
		"[2001:DB8::1]:80": "2001:db8::1", "[2001:db8::1]": "2001:db8::1", "192.0.2.1:80": "192.0.2.1", "": "",
		strings.Repeat("x", 300): headgate.HashKey(strings.Repeat("x", 300)),
	} {
		if got := who.Attributes(&http.Request{Host: host})["host"]; got != want {
			t.Errorf("host %q is %q, want %q", host, got, want)
		}
	}
}

// TestDifferingLinesAreAbsent tests headers with several lines: a backend may use the first, the last or both.
func TestDifferingLinesAreAbsent(t *testing.T) {
	t.Parallel()
	options := behindProxies
	options.APIKey = identity.APIKey{Header: "X-API-Key", Query: "key"}
	options.ServiceAccount = []string{"header.x-service"}
	options.Tenant = []string{"header.x-tenant"}
	options.Tier = []string{"header.x-tier"}
	options.Region = []string{"header.x-region"}
	who := resolver(t, options)
	headers := map[string]string{
		"api_key": "X-Api-Key", "user": "X-User-Id", "service_account": "X-Service", "tenant": "X-Tenant", "tier": "X-Tier",
		"region": "X-Region", "header.x-any": "X-Any", "user_agent": "User-Agent",
	}
	shown := func(name, value string) string {
		if name == "api_key" && value != "" {
			return headgate.HashKey(value)
		}
		return value
	}
	for name, header := range headers {
		for _, test := range []struct {
			lines []string
			want  string
		}{
			{[]string{"a"}, "a"},
			{[]string{" a\t"}, "a"},
			{[]string{"a", "a "}, "a"},
			{[]string{"a", "b"}, ""},
			{[]string{"a", "b", "a"}, ""},
			{[]string{"", "a"}, ""},
			{[]string{"a", ""}, ""},
			{[]string{""}, ""},
			{[]string{"  "}, ""},
			{nil, ""},
		} {
			if name == "api_key" && len(test.lines) > 1 {
				continue // see TestSeveralKeys
			}
			r := &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{header: test.lines}}
			if got := who.Attributes(r, "header.x-any")[name]; got != shown(name, test.want) {
				t.Errorf("%s from %q: %q, want %q", name, test.lines, got, shown(name, test.want))
			}
		}
	}
	for cookies, want := range map[string]string{
		"s=a": "a", "s=a; s=a": "a", "s=a; s=b": "", "x=s; s=": "",
	} {
		r := &http.Request{Header: http.Header{"Cookie": strings.Split(cookies, "|")}}
		if got := who.Attributes(r, "cookie.s")["cookie.s"]; got != want {
			t.Errorf("cookies %q: %q, want %q", cookies, got, want)
		}
	}
	r := &http.Request{Header: http.Header{"Cookie": {"s=a", "s=b"}}}
	if got := who.Attributes(r, "cookie.s")["cookie.s"]; got != "" {
		t.Errorf("cookies on two lines: %q", got)
	}
	for query, want := range map[string]string{
		"key=a": "a", "x=1&key=a": "a", "k%65y=a%20": "a", "key=a&key=a": "a", "key=": "", "keys=a": "", "key=a#1": "a", "key=a&key=": "a",
	} {
		r := &http.Request{URL: &url.URL{RawQuery: query}}
		if got := who.Attributes(r)["api_key"]; got != shown("api_key", want) {
			t.Errorf("query %q: %q, want the key %q", query, got, want)
		}
	}
}

// TestSeveralKeys tests that all requests with several keys are one client, which differs from a client without a key.
func TestSeveralKeys(t *testing.T) {
	t.Parallel()
	options := behindProxies
	options.APIKey = identity.APIKey{Header: "X-API-Key", Query: "key"}
	who := resolver(t, options)
	several := map[string]bool{}
	for _, test := range []struct {
		lines []string
		query string
	}{
		{[]string{"a", "b"}, ""}, {[]string{"b", "c", "b"}, ""}, {[]string{"a,c"}, ""}, {[]string{"a"}, "key=b"}, {nil, "key=a&k%65y=b"},
	} {
		r := &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{"X-Api-Key": test.lines}, URL: &url.URL{RawQuery: test.query}}
		several[who.Attributes(r)["api_key"]] = true
		if len(test.lines) == 1 && test.query == "" {
			sent := headgate.Attributes{"api_key": test.lines[0]}
			if err := who.Normalize(sent); err != nil {
				t.Error(err)
			}
			several[sent["api_key"]] = true
		}
	}
	if len(several) != 1 || several[""] || several[headgate.HashKey("a")] {
		t.Errorf("%v", several)
	}
	one := &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{"X-Api-Key": {"a", "", " a"}}}
	if got := who.Attributes(one)["api_key"]; got != headgate.HashKey("a") {
		t.Errorf("one key, given twice: %q", got)
	}
}

func TestHeadersOfUntrustedPeers(t *testing.T) {
	t.Parallel()
	options := behindProxies
	options.ServiceAccount = []string{"header.x-service"}
	options.Tenant = []string{"header.x-tenant", "header.x-org"}
	options.Tier = []string{"header.x-tier"}
	options.Region = []string{"header.x-region"}
	who := resolver(t, options)
	r := &http.Request{RemoteAddr: "192.0.2.1:1", Header: http.Header{
		"X-User-Id": {"ada"}, "X-Service": {"s"}, "X-Org": {"acme"}, "X-Tier": {"gold"}, "X-Region": {"eu"},
	}}
	want := headgate.Attributes{"ip": "192.0.2.1", "method": "GET", "path": "/"}
	if got := who.Attributes(r); !maps.Equal(got, want) {
		t.Errorf("attributes of an untrusted peer: %v", got)
	}
	r.RemoteAddr = "10.0.0.1:1"
	want = headgate.Attributes{
		"ip": "10.0.0.1", "method": "GET", "path": "/",
		"user": "ada", "service_account": "s", "tenant": "acme", "tier": "gold", "region": "eu",
	}
	if got := who.Attributes(r); !maps.Equal(got, want) {
		t.Errorf("attributes\n%v, want\n%v", got, want)
	}
}

func TestSecretsAreHashed(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	options := identity.Options{
		APIKey: identity.APIKey{Header: "X-API-Key", Query: "key"},
		JWT:    identity.JWT{Algorithms: []string{"HS256"}, Secret: make([]byte, 32), Header: "X-Token"},
	}
	who := resolver(t, options)
	r := &http.Request{URL: &url.URL{RawQuery: "key=" + secret}, RequestURI: "/x?key=" + secret, Header: http.Header{
		"X-Api-Key": {secret}, "Authorization": {"Basic " + secret}, "Cookie": {"a=" + secret}, "X-Token": {secret},
		"Proxy-Authorization": {secret},
	}}
	got := who.Attributes(r, "header.x-api-key", "header.authorization", "header.cookie", "header.x-token", "header.proxy-authorization")
	if len(got) != 8 {
		t.Errorf("attributes %v", got)
	}
	for name, value := range got {
		if strings.Contains(value, secret) {
			t.Errorf("%s shows a secret", name)
		}
	}
	if want := headgate.HashKey(" " + secret + "\n"); got["api_key"] != want {
		t.Errorf("api_key %q, want %q", got["api_key"], want)
	}

	options.APIKey = identity.APIKey{Header: "Authorization"}
	who = resolver(t, options)
	for line, want := range map[string]string{
		"Bearer k": headgate.HashKey("k"), "bearer  k ": headgate.HashKey("k"), "k": "", "Basic k": "", "Bearer": "",
	} {
		r := &http.Request{Header: http.Header{"Authorization": {line}}}
		if got := who.Attributes(r)["api_key"]; got != want {
			t.Errorf("authorization %q: api_key %q, want %q", line, got, want)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	options := behindProxies
	options.Tenant = []string{"header.x-tenant"}
	who := resolver(t, options)
	long := strings.Repeat("x", identity.MaxValue)
	r := &http.Request{RemoteAddr: "10.0.0.1:1", Host: "example.com", Header: http.Header{
		"X-Tenant": {long}, "X-User-Id": {long + "1"}, "X-Long": {long + "2"}, "Cookie": {"c=" + long + "3"},
		"User-Agent": {strings.Repeat("é", 200)},
	}}
	got := who.Attributes(r, "header.x-long", "cookie.c")
	want := headgate.Attributes{
		"ip": "10.0.0.1", "host": "example.com", "method": "GET", "path": "/", "user_agent": strings.Repeat("é", 128), "tenant": long,
		"user": headgate.HashKey(long + "1"), "header.x-long": headgate.HashKey(long + "2"), "cookie.c": headgate.HashKey(long + "3"),
	}
	if !maps.Equal(got, want) {
		t.Errorf("attributes\n%v, want\n%v", got, want)
	}
	r.Header.Set("User-Agent", "x"+strings.Repeat("é", 200))
	if got := who.Attributes(r)["user_agent"]; len(got) != 255 || !utf8.ValidString(got) {
		t.Errorf("user_agent of %d bytes: %q", len(got), got)
	}

	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("header.x-%d", i))
		r.Header.Set(fmt.Sprintf("X-%d", i), "y")
	}
	got = who.Attributes(r, names...)
	if len(got) != identity.MaxAttributes || got["user"] == "" || got["header.x-0"] == "" || got["header.x-99"] != "" {
		t.Errorf("%d attributes: %v", len(got), got)
	}
	name := "x-" + strings.Repeat("y", 200)
	r.Header.Set(name, "z")
	if got := who.Attributes(r, "header."+name); got["header."+name] != "" {
		t.Error("an attribute with a long name")
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	secret := []byte(strings.Repeat("s", 32))
	tokens := func(j identity.JWT) identity.Options { return identity.Options{JWT: j} }
	tests := map[string]struct {
		options identity.Options
		want    string
	}{
		"both":                 {identity.Options{TrustedProxies: behindProxies.TrustedProxies, TrustedHops: 1}, "set only one"},
		"all addresses":        {identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}, "trusts every peer"},
		"invalid network":      {identity.Options{TrustedProxies: []netip.Prefix{{}}}, "list the networks"},
		"hops":                 {identity.Options{TrustedHops: -1}, "TrustedHops -1: must be 0 to 63"},
		"many hops":            {identity.Options{TrustedHops: 64}, "TrustedHops 64: must be 0 to 63"},
		"header":               {identity.Options{ForwardedHeader: "X-Real-IP"}, "must be X-Forwarded-For or Forwarded"},
		"prefix":               {identity.Options{IPv6Prefix: 129}, "must be 1 to 128"},
		"source":               {identity.Options{Tenant: []string{"cookie.x"}}, "must be header.NAME or claim.NAME"},
		"source without name":  {identity.Options{Tenant: []string{"header."}}, "must be header.NAME or claim.NAME"},
		"claim without tokens": {identity.Options{Tier: []string{"claim.tier"}}, "no tokens are trusted"},
		"no algorithms":        {tokens(identity.JWT{Secret: secret}), "algorithms: required"},
		"no key":               {tokens(identity.JWT{Algorithms: []string{"HS256"}}), "set exactly one of"},
		"two keys":             {tokens(identity.JWT{Algorithms: []string{"HS256"}, Secret: secret, KeyURL: "https://x/"}), "set exactly one of"},
		"none":                 {tokens(identity.JWT{Algorithms: []string{"none"}, Secret: secret}), `"none": not a signature algorithm`},
		"unknown algorithm":    {tokens(identity.JWT{Algorithms: []string{"RS1"}, KeyURL: "https://x/"}), `"RS1": not a signature algorithm`},
		"HS with a URL":        {tokens(identity.JWT{Algorithms: []string{"RS256", "HS256"}, KeyURL: "https://x/"}), "HS256 does not match the key"},
		"RS with a secret":     {tokens(identity.JWT{Algorithms: []string{"HS256", "RS256"}, Secret: secret}), "RS256 does not match the key"},
		"short secret":         {tokens(identity.JWT{Algorithms: []string{"HS256"}, Secret: secret[:31]}), "can be guessed"},
		"secret is a key": {
			tokens(identity.JWT{Algorithms: []string{"HS256"}, Secret: []byte("-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQ")}),
			"use KeyFile",
		},
		"leeway":   {tokens(identity.JWT{Algorithms: []string{"HS256"}, Secret: secret, Leeway: time.Hour}), "must be 0 to 5m"},
		"no URL":   {tokens(identity.JWT{Algorithms: []string{"RS256"}, KeyURL: "example.com/keys"}), "KeyURL: not a URL"},
		"by http":  {tokens(identity.JWT{Algorithms: []string{"RS256"}, KeyURL: "http://example.com/keys"}), "use https://"},
		"no file":  {tokens(identity.JWT{Algorithms: []string{"RS256"}, KeyFile: "no/such/file"}), "no/such/file"},
		"bad file": {tokens(identity.JWT{Algorithms: []string{"RS256"}, KeyFile: "doc.go"}), "neither a JWK set nor PEM"},
	}
	for name, test := range tests {
		_, err := identity.New(test.options)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		} else if strings.Contains(err.Error(), string(secret)) {
			t.Errorf("%s: the error shows the secret", name)
		}
	}
}
