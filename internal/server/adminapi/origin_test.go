package adminapi

import "testing"

func TestLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8083": true, "LocalHost.": true, "a.localhost:1": true, "127.0.0.1": true, "127.1.2.3:8083": true,
		"[::1]:8083": true, "[::1]": true, "[::ffff:127.0.0.1]:1": true,
		"": false, ":8083": false, "localhost.example": false, "notlocalhost": false, "0.0.0.0": false, "10.0.0.1:8083": false,
		"127.0.0.1.example:8083": false, "127.1": false, "[2001:db8::1]:1": false, "example@localhost:80@x": false,
	} {
		if got := loopback(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
