package peers

import "testing"

func TestName(t *testing.T) {
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
		if got := Name(remote); got != want {
			t.Errorf("%q: %q, want %q", remote, got, want)
		}
	}
}
