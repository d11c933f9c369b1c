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
