package identity_test

import (
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
)

// What a proxy tells of a request is the same as what is read from it.
func TestPut(t *testing.T) {
	t.Parallel()
	r, err := identity.New(identity.Options{APIKey: identity.APIKey{Header: "X-API-Key"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, remote := range []string{"192.0.2.1", "2001:db8:1:2:3::4"} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/a%252Fb/../c//;x=1?q=2", http.NoBody)
		req.RemoteAddr, req.Host = net.JoinHostPort(remote, "1234"), ""
		req.Header.Set("X-API-Key", " secret ")
		want := r.Attributes(req)
		got := headgate.Attributes{}
		for name, value := range map[string]string{"ip": remote, "path": "/a%252Fb/../c//;x=1?q=2", "method": "head", "api_key": "secret"} {
			r.Put(got, name, value)
		}
		delete(want, "host")
		if !maps.Equal(got, want) {
			t.Errorf("told %v, read %v", got, want)
		}
	}
	odd := headgate.Attributes{}
	r.Put(odd, "ip", "unix")
	r.Put(odd, "tenant", "acme")
	r.Put(odd, "user", "")
	if !maps.Equal(odd, headgate.Attributes{"ip": "unix", "tenant": "acme"}) {
		t.Errorf("%v", odd)
	}
}
