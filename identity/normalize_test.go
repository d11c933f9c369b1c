package identity_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
)

// TestNormalize tests that normalized attributes equal those that Attributes reads from the same request.
func TestNormalize(t *testing.T) {
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
		delete(want, "host")
		sent := headgate.Attributes{"ip": remote, "path": "/a%252Fb/../c//;x=1?q=2", "method": "head", "api_key": "secret"}
		if err := r.Normalize(sent); err != nil || !maps.Equal(sent, want) {
			t.Errorf("sent %v, %v; read %v", sent, err, want)
		}
		again := maps.Clone(sent)
		again["api_key_hash"] = again["api_key"]
		delete(again, "api_key")
		if err := r.Normalize(again); err != nil || !maps.Equal(again, want) {
			t.Errorf("normalised again: %v, %v; want %v", again, err, want)
		}
	}
	unusual := headgate.Attributes{"ip": "unix", "tenant": "acme", "user": ""}
	if err := r.Normalize(unusual); err != nil || !maps.Equal(unusual, headgate.Attributes{"ip": "unix", "tenant": "acme", "user": ""}) {
		t.Errorf("%v, %v", unusual, err)
	}
}

// TestNormalizeBounds tests that long values are bounded, and that too many attributes do not prevent the path from being read.
func TestNormalizeBounds(t *testing.T) {
	t.Parallel()
	r, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	long := strings.Repeat("x", identity.MaxValue+1)
	attrs := headgate.Attributes{
		"path": "/x/../login", "user": long, "header.authorization": "Bearer secret", "descriptor.text": long, "host": "API.Example:443",
	}
	for i := range 200 {
		attrs[fmt.Sprint("header.x-", i)] = "a"
	}
	if err := r.Normalize(attrs); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"path": "/login", "user": headgate.HashKey(long), "header.authorization": headgate.HashKey("Bearer secret"),
		"descriptor.text": long, "host": "api.example",
	} {
		if attrs[name] != want {
			t.Errorf("%s is %q, want %q", name, attrs[name], want)
		}
	}
}
