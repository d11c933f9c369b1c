package netaddr

import "testing"

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.1.2.3": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "a.localhost": false, "localhost.example": false, "0.0.0.0": false, "::": false, "10.0.0.1": false,
		"127.0.0.1:80": false, "[::1]": false, "127.1": false,
	} {
		if got := IsLoopback(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func TestIsReachable(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		":8080": true, "0.0.0.0:8080": true, "[::]:0": true, "gate.example:80": true,
		"127.0.0.1:8080": false, "[::1]:8080": false, "localhost:8080": false, "": false, "0.0.0.0": false,
	} {
		if got := IsReachable(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}

func TestPeerName(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:80":                 "192.0.2.1",
		"[::ffff:192.0.2.1]:80":        "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6%x]:443": "2001:db8:1:2::/64",
		"[2001:db8:1:2::]:443":         "2001:db8:1:2::/64",
		"pipe:1":                       "pipe",
		"@":                            "@",
		"":                             "",
	} {
		if got := PeerName(remote); got != want {
			t.Errorf("%q: %q, want %q", remote, got, want)
		}
	}
}
