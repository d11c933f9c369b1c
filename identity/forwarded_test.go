package identity_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/identity"
)

// behindProxies trusts the proxies of the tests, at 10.x and fd00:x.
var behindProxies = identity.Options{TrustedProxies: []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"),
}}

func resolver(t testing.TB, o identity.Options) *identity.Resolver {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	who, err := identity.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(who.Close)
	return who
}

func ipOf(who *identity.Resolver, peer, header string, lines ...string) string {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{header: lines}}
	return who.Attributes(r)["ip"]
}

func TestClientIP(t *testing.T) {
	t.Parallel()
	hops := func(n int) identity.Options { return identity.Options{TrustedHops: n} }
	unix := behindProxies
	unix.TrustUnix = true
	mapped := identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}}
	whole, wide := behindProxies, behindProxies
	whole.IPv6Prefix, wide.IPv6Prefix = 128, 48
	type request struct {
		options identity.Options
		peer    string
		lines   []string
		want    string
	}
	proxied := func(want string, lines ...string) request {
		return request{options: behindProxies, peer: "10.0.0.1:1", lines: lines, want: want}
	}
	tests := map[string]request{
		"peer":                             {peer: "192.0.2.1:4711", want: "192.0.2.1"},
		"IPv4-mapped peer":                 {peer: "[::ffff:192.0.2.1]:4711", want: "192.0.2.1"},
		"peer with zone":                   {peer: "[fe80::1%eth0]:4711", want: "fe80::/64"},
		"peer, not trusted":                {options: behindProxies, peer: "192.0.2.1:1", lines: []string{"198.51.100.7"}, want: "192.0.2.1"},
		"no proxy is trusted":              {peer: "10.0.0.1:1", lines: []string{"198.51.100.7"}, want: "10.0.0.1"},
		"one proxy":                        proxied("198.51.100.7", "198.51.100.7"),
		"IPv4-mapped proxy":                {options: behindProxies, peer: "[::ffff:10.0.0.1]:1", lines: []string{"198.51.100.7"}, want: "198.51.100.7"},
		"IPv4-mapped network":              {options: mapped, peer: "10.0.0.1:1", lines: []string{"198.51.100.7"}, want: "198.51.100.7"},
		"proxy without the header":         {options: behindProxies, peer: "10.0.0.1:1", want: "10.0.0.1"},
		"invented by the client":           proxied("198.51.100.7", "1.2.3.4, 10.9.9.9, 198.51.100.7"),
		"invented, on a line of its own":   proxied("198.51.100.7", "1.2.3.4", "198.51.100.7"),
		"two proxies":                      proxied("198.51.100.7", "1.2.3.4, 198.51.100.7,10.0.0.2"),
		"two proxies, two lines":           proxied("198.51.100.7", "1.2.3.4, 198.51.100.7", "10.0.0.2"),
		"all are proxies":                  proxied("10.0.0.3", "10.0.0.3, 10.0.0.2"),
		"unreadable":                       proxied("10.0.0.1", "1.2.3.4, unknown"),
		"unreadable behind a proxy":        proxied("10.0.0.2", "1.2.3.4, nonsense, 10.0.0.2"),
		"empty entry":                      proxied("10.0.0.2", "1.2.3.4, , 10.0.0.2"),
		"empty line":                       proxied("10.0.0.1", "1.2.3.4", ""),
		"leading zeros":                    proxied("10.0.0.1", "1.2.3.4, 010.0.0.2"),
		"with port":                        proxied("198.51.100.7", "198.51.100.7:80"),
		"with an invalid port":             proxied("10.0.0.1", "198.51.100.7:http"),
		"IPv6 is its /64":                  proxied("2001:db8:1:2::/64", "2001:db8:1:2:3:4:5:6"),
		"IPv6 with brackets":               proxied("2001:db8:1:2::/64", "[2001:db8:1:2::9]"),
		"IPv6 with port":                   proxied("2001:db8:1:2::/64", "[2001:db8:1:2::9]:80"),
		"IPv6 with open bracket":           proxied("10.0.0.1", "[2001:db8::1"),
		"IPv6 with something after":        proxied("10.0.0.1", "[2001:db8::1]x"),
		"IPv6 with port, without brackets": proxied("10.0.0.1", "[2001:db8::1]80"),
		"IPv6 whole, with zone":            {options: whole, peer: "[fe80::1%eth0]:1", want: "fe80::1"},
		"too many hops":                    proxied("10.0.0.2", "1.2.3.4"+strings.Repeat(",10.0.0.2", 999)),
		"IPv4 in brackets":                 proxied("10.0.0.1", "[198.51.100.7]"),
		"IPv6 proxy by its full address":   {options: behindProxies, peer: "[fd00::1]:1", lines: []string{"198.51.100.7"}, want: "198.51.100.7"},
		"IPv6 whole":                       {options: whole, peer: "[2001:db8:1:2::9]:1", want: "2001:db8:1:2::9"},
		"IPv6 wide":                        {options: wide, peer: "[2001:db8:1:2::9]:1", want: "2001:db8:1::/48"},
		"one hop":                          {options: hops(1), peer: "192.0.2.1:1", lines: []string{"1.2.3.4, 198.51.100.7"}, want: "198.51.100.7"},
		"two hops":                         {options: hops(2), peer: "192.0.2.1:1", lines: []string{"1.2.3.4, 198.51.100.7, 203.0.113.5"}, want: "198.51.100.7"},
		"two hops, one skipped":            {options: hops(2), peer: "192.0.2.1:1", lines: []string{"203.0.113.5"}, want: "203.0.113.5"},
		"two hops, unreadable":             {options: hops(2), peer: "192.0.2.1:1", lines: []string{"1.2.3.4, x, 203.0.113.5"}, want: "203.0.113.5"},
		"one hop without the header":       {options: hops(1), peer: "192.0.2.1:1", want: "192.0.2.1"},
		"unix socket":                      {options: behindProxies, peer: "@", lines: []string{"198.51.100.7"}, want: ""},
		"trusted unix socket":              {options: unix, peer: "@", lines: []string{"198.51.100.7"}, want: "198.51.100.7"},
		"trusted unix socket, unreadable":  {options: unix, peer: "@", lines: []string{"198.51.100.7, x"}, want: ""},
		"unix socket, hops":                {options: hops(1), peer: "", lines: []string{"198.51.100.7"}, want: "198.51.100.7"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ipOf(resolver(t, test.options), test.peer, "X-Forwarded-For", test.lines...); got != test.want {
				t.Errorf("ip %q, want %q", got, test.want)
			}
		})
	}
}

func TestForwarded(t *testing.T) {
	t.Parallel()
	options := behindProxies
	options.ForwardedHeader = identity.Forwarded
	who := resolver(t, options)
	tests := []struct {
		lines []string
		want  string
	}{
		{[]string{"for=198.51.100.7"}, "198.51.100.7"},
		{[]string{"FOR=198.51.100.7;proto=https;by=10.0.0.1"}, "198.51.100.7"},
		{[]string{`proto=https; for="198.51.100.7:4711"`}, "198.51.100.7"},
		{[]string{`for="198.51.100.7:_port"`}, "198.51.100.7"},
		{[]string{"; for=198.51.100.7 ;;"}, "198.51.100.7"},
		{[]string{`for="[2001:db8:1:2::3]:1234"`}, "2001:db8:1:2::/64"},
		{[]string{`for="[2001:db8:1:2::3]"`}, "2001:db8:1:2::/64"},
		{[]string{"for=1.2.3.4, for=198.51.100.7, for=10.0.0.2"}, "198.51.100.7"},
		{[]string{"for=1.2.3.4", "for=198.51.100.7"}, "198.51.100.7"},
		{[]string{"for=1.2.3.4, for=_hidden"}, "10.0.0.1"},
		{[]string{"for=1.2.3.4, for=unknown"}, "10.0.0.1"},
		{[]string{"for=1.2.3.4, proto=https"}, "10.0.0.1"},
		{[]string{"for=1.2.3.4, for=198.51.100.7;for=1.2.3.4"}, "10.0.0.1"},
		{[]string{"for=1.2.3.4, nonsense"}, "10.0.0.1"},
		{[]string{`for=1.2.3.4, for="1.2.3.5`}, "10.0.0.1"},
		{[]string{`for=1.2.3.4, for="1.2.3.\5"`}, "10.0.0.1"},
		{[]string{"1.2.3.4"}, "10.0.0.1"},
		// Entries to the left must not absorb or move the entry that the proxy appended.
		{[]string{`for="1.2.3.4, for=198.51.100.7`}, "198.51.100.7"},
		{[]string{`for="1.2.3.4`, `for=198.51.100.7`}, "198.51.100.7"},
		{[]string{`x="\", for=198.51.100.7`}, "198.51.100.7"},
		// Nor must a quoted value.
		{[]string{`for=198.51.100.7;host="a, for=1.2.3.4"`}, "198.51.100.7"},
		{[]string{`for=198.51.100.7;host="a\", for=1.2.3.4"`}, "198.51.100.7"},
		{[]string{`for=198.51.100.7;host="a\\"`}, "198.51.100.7"},
		{[]string{`host="a\";for=1.2.3.4;b=\"";for=198.51.100.7`}, "198.51.100.7"},
	}
	for _, test := range tests {
		if got := ipOf(who, "10.0.0.1:1", "Forwarded", test.lines...); got != test.want {
			t.Errorf("%q: ip %q, want %q", test.lines, got, test.want)
		}
	}
	if got := ipOf(who, "10.0.0.1:1", "X-Forwarded-For", "1.2.3.4"); got != "10.0.0.1" {
		t.Errorf("the other header was read: ip %q", got)
	}
	if got := ipOf(resolver(t, behindProxies), "10.0.0.1:1", "Forwarded", "for=1.2.3.4"); got != "10.0.0.1" {
		t.Errorf("the other header was read: ip %q", got)
	}
}

func TestManyAddressesOneClient(t *testing.T) {
	t.Parallel()
	who := resolver(t, identity.Options{})
	seen := map[string]bool{}
	for i := range 200 {
		seen[ipOf(who, "192.0.2.1:4711", "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i))] = true
	}
	if len(seen) != 1 || !seen["192.0.2.1"] {
		t.Errorf("a peer that rotates X-Forwarded-For is %v", seen)
	}

	clear(seen)
	addr := netip.MustParseAddr("2001:db8:1:2::").As16()
	r := &http.Request{}
	for i := range 10_000 {
		addr[8], addr[13], addr[14], addr[15] = byte(i), byte(i>>16), byte(i>>8), byte(i)
		r.RemoteAddr = netip.AddrPortFrom(netip.AddrFrom16(addr), 4711).String()
		seen[who.Attributes(r)["ip"]] = true
	}
	if len(seen) != 1 || !seen["2001:db8:1:2::/64"] {
		t.Errorf("10,000 addresses of one network are %d clients", len(seen))
	}
}

// TestFromProxy tests that only a trusted proxy's header is used, and that other peers are logged.
func TestFromProxy(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	options := behindProxies
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	who := resolver(t, options)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header = http.Header{"X-Forwarded-Uri": {"/a", "/b"}}
	r.RemoteAddr = "10.0.0.1:4711"
	if got := who.FromProxy(r, "x-forwarded-uri"); !slices.Equal(got, []string{"/a", "/b"}) {
		t.Errorf("from a trusted proxy: %q", got)
	}
	r.RemoteAddr = "192.0.2.1:4711"
	for range 2 {
		if got := slices.Concat(who.FromProxy(r, "X-Forwarded-URI"), who.FromProxy(r, "X-Absent")); len(got) > 0 {
			t.Errorf("from an untrusted peer: %q", got)
		}
	}
	if line, more, _ := strings.Cut(log.String(), "\n"); more != "" ||
		!strings.Contains(line, "peer=192.0.2.1 header=X-Forwarded-Uri") {
		t.Errorf("log:\n%s", log.String())
	}
}

func TestUntrusted(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	options := behindProxies
	options.Log = slog.New(slog.NewTextHandler(&log, nil))
	who := resolver(t, options)
	for range 3 {
		ipOf(who, "192.0.2.1:4711", "X-Forwarded-For", "198.51.100.7")
		ipOf(who, "[2001:db8::1]:1", "X-Forwarded-For", "198.51.100.7")
		ipOf(who, "[2001:db8::2]:1", "X-Forwarded-For", "198.51.100.7")
		ipOf(who, "@", "X-Forwarded-For", "198.51.100.7")
		ipOf(who, "10.0.0.1:1", "X-Forwarded-For", "198.51.100.7")
		ipOf(who, "192.0.2.2:1", "Forwarded", "for=198.51.100.7")
	}
	for _, peer := range []string{"192.0.2.1", "2001:db8::/64", "a peer without an address"} {
		if n := strings.Count(log.String(), peer); n != 1 {
			t.Errorf("%s is %d times in the log:\n%s", peer, n, log.String())
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 3 {
		t.Errorf("%d lines in the log, want 3:\n%s", n, log.String())
	}
	for i := range 2000 {
		ipOf(who, fmt.Sprintf("198.18.%d.%d:1", i/256, i%256), "X-Forwarded-For", "198.51.100.7")
	}
	if n := strings.Count(log.String(), "\n"); n > 1001 {
		t.Errorf("%d lines in the log, want at most 1001", n)
	}
}

// FuzzForwarded prepends arbitrary client input to the entries of the proxies. It must not change the result.
func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{"", "1.2.3.4", "1.2.3.4, 10.0.0.7", `for="1.2.3.4`, `for="a\"`, `"`, `\`, `x="\", for=1.2.3.4`, ",", ";"} {
		f.Add(seed, seed)
	}
	quoted := behindProxies
	quoted.ForwardedHeader = identity.Forwarded
	f.Fuzz(func(t *testing.T, line, more string) {
		for _, way := range []struct {
			options                identity.Options
			header, client, hidden string
		}{
			{behindProxies, "X-Forwarded-For", "203.0.113.9", "?"},
			{quoted, "Forwarded", "for=203.0.113.9", "for=_hidden"},
			{quoted, "Forwarded", `host="a, \"b";for="203.0.113.9:1"`, `host=","`},
		} {
			who := resolver(t, way.options)
			hop := strings.Replace(way.client, "203.0.113.9", "10.0.0.2", 1)
			for _, lines := range [][]string{
				{line, more, way.client},
				{line, more + "," + way.client},
				{line + ", " + more + ", " + way.client + "," + hop},
				{line, more + ", " + way.client, hop},
			} {
				if got := ipOf(who, "10.0.0.1:1", way.header, lines...); got != "203.0.113.9" {
					t.Errorf("%s %q: ip %q", way.header, lines, got)
				}
			}
			if got := ipOf(who, "10.0.0.1:1", way.header, line, more+", "+way.hidden); got != "10.0.0.1" {
				t.Errorf("%s %q, %q, then an unreadable entry: ip %q", way.header, line, more, got)
			}
			if got := ipOf(who, "192.0.2.1:1", way.header, line, more); got != "192.0.2.1" {
				t.Errorf("%s %q, %q of a peer that is not trusted: ip %q", way.header, line, more, got)
			}
		}
	})
}
