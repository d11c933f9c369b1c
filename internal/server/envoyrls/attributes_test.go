package envoyrls

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
)

// TestKeysAreHashed checks that no attribute of a descriptor contains an API key in clear text, even if it is repeated.
func TestKeysAreHashed(t *testing.T) {
	t.Parallel()
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer resolver.Close()
	d := descriptor{entries: []entry{{"api_key", "k-123"}, {"api_key", "k-456"}, {"user", "ann"}}}
	a, err := d.attributes("api", resolver)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range a {
		if strings.HasPrefix(value, "k-") {
			t.Errorf("%s is %s", name, value)
		}
	}
	if want := headgate.HashKey("k-123"); a["api_key"] != want || a["descriptor.api_key"] != want {
		t.Errorf("%v", a)
	}
}
