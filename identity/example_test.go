package identity_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/headgate/headgate/identity"
)

func Example() {
	who, err := identity.New(identity.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		APIKey:         identity.APIKey{Header: "X-API-Key"},
		Tenant:         []string{"header.x-tenant"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer who.Close()

	r := httptest.NewRequest(http.MethodHead, "/reports//7/", http.NoBody)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "192.0.2.99, 2001:db8:1:2:3:4:5:6")
	r.Header.Set("X-API-Key", "k-12345")
	r.Header.Set("X-Tenant", "acme")
	r.Header.Set("X-Rows", "500")

	attributes := who.Attributes(r, "header.x-rows")
	for _, name := range []string{"ip", "api_key", "tenant", "method", "path", "header.x-rows"} {
		fmt.Println(name, attributes[name])
	}
	// Output:
	// ip 2001:db8:1:2::/64
	// api_key sha256:8BgO_c44N2VRnyi8HNtnmG
	// tenant acme
	// method GET
	// path /reports/7
	// header.x-rows 500
}

func ExampleNew_tokens() {
	who, err := identity.New(identity.Options{
		JWT: identity.JWT{
			Algorithms: []string{"RS256"},
			KeyURL:     "https://login.example.com/.well-known/jwks.json",
			Issuer:     "https://login.example.com",
			Audience:   []string{"api"},
		},
		Tenant: []string{"claim.org.id"},
		Tier:   []string{"claim.plan"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	who.Close()
	// Output:
}

func ExampleResolver_Metadata() {
	who, err := identity.New(identity.Options{TrustUnix: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer who.Close()

	metadata := map[string][]string{"x-user-id": {"ada"}, "x-forwarded-for": {"192.0.2.1"}}
	attributes := who.Metadata(metadata, nil, "/shop.Cart/Add")
	fmt.Println(attributes["user"], attributes["ip"], attributes["path"])
	// Output: ada 192.0.2.1 /shop.Cart/Add
}

func ExamplePath() {
	for _, raw := range []string{"/login/?x=1", "/api/../login", "/users/a%2Fb", "/a/..;x/login"} {
		path, other := identity.Path(raw)
		fmt.Printf("%s %q\n", path, other)
	}
	// Output:
	// /login ""
	// /login "/api/../login"
	// /users/a/b "/users/a%2Fb"
	// /login "/a/..;/login?/a/..;x/login?/a/.."
}
