package headgate_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

func TestKeyHash(t *testing.T) {
	t.Parallel()
	hash := headgate.HashKey("k-12345")
	for given, want := range map[string]string{"k-12345": hash, " k-12345\n": hash, hash: hash, "": "", " ": ""} {
		if got := headgate.EnsureKeyHash(given); got != want {
			t.Errorf("%q becomes %q, not %q", given, got, want)
		}
	}
	for _, invalid := range []string{"sha256:", "sha256:short", hash + "x", strings.Replace(hash, "8", "!", 1), strings.ToUpper(hash)} {
		if got := headgate.EnsureKeyHash(invalid); got == invalid || got != headgate.HashKey(invalid) {
			t.Errorf("%q becomes %q", invalid, got)
		}
		if _, err := headgate.ParseKeyHash(invalid); (err == nil) != strings.HasPrefix(invalid, "SHA") {
			t.Errorf("%q: %v", invalid, err)
		}
	}
}

// TestKeyAndHashAreOneClient checks that a key and its hash identify the same client, in requests, overrides, exemptions and
// conditions.
func TestKeyAndHashAreOneClient(t *testing.T) {
	t.Parallel()
	hash := headgate.HashKey("k")
	for _, written := range []string{"k", hash} {
		l, err := headgate.New(memstore.New(memstore.Options{}),
			headgate.Rule{ID: "all", By: []string{"api_key"}, Limit: headgate.PerHour(1)},
			headgate.Rule{
				ID: "some", By: []string{"api_key"}, Limit: headgate.PerHour(50),
				Match: headgate.Match{Attributes: map[string]headgate.Pattern{"api_key": headgate.OneOf(written)}},
			},
			headgate.Rule{ID: "not", By: []string{"api_key"}, Limit: headgate.PerHour(1)})
		if err != nil {
			t.Fatal(err)
		}
		err = l.Exceptions().Set(headgate.Override{Rule: "all", Subject: headgate.Attributes{"api_key": written}, Limit: headgate.PerHour(100)})
		if err == nil {
			err = l.Exceptions().Exempt(headgate.Exemption{Rule: "not", Attribute: "api_key", Value: written})
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, sent := range []string{"k", hash, "k"} {
			a := headgate.Attributes{"api_key": sent}
			d, err := l.Check(t.Context(), headgate.Request{Attributes: a})
			if err != nil || !d.Allowed || len(d.Limits) != 2 || d.Limits[0].Remaining != int64(99-i) || d.Limits[1].Remaining != int64(49-i) {
				t.Errorf("written %q, sent %q: %+v, %v", written, sent, d, err)
			}
			if a["api_key"] != sent {
				t.Errorf("the caller's attributes have changed: %v", a)
			}
		}
	}
}
