package identity_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
)

func BenchmarkAttributes(b *testing.B) {
	key := rsaKeys()[0]
	options := behindProxies
	options.APIKey.Header = "X-API-Key"
	options.JWT = identity.JWT{Algorithms: []string{"RS256"}, KeyFile: writeFile(b, "key.pem", pemOf(b, key.Public()))}
	who := resolver(b, options)
	token := "Bearer " + sign(b, jwt.SigningMethodRS256, key, "", with(nil))

	plain := httptest.NewRequest(http.MethodGet, "/api/v1/users/4711?page=2", http.NoBody)
	plain.Header.Set("User-Agent", "example/1.0")
	forwarded := plain.Clone(b.Context())
	forwarded.RemoteAddr = "10.0.0.1:4711"
	forwarded.Header.Set("X-Forwarded-For", "198.51.100.7, 10.0.0.2")
	keyed := forwarded.Clone(b.Context())
	keyed.Header.Set("X-Api-Key", "k-12345")
	signed := forwarded.Clone(b.Context())
	signed.Header.Set("Authorization", token)
	evasive := plain.Clone(b.Context())
	evasive.RequestURI = "/api//v1/./x/..%2fusers;a=1/47%31%31/?page=2"

	for _, bench := range []struct {
		name    string
		request *http.Request
		names   []string
	}{
		{"plain", plain, nil},
		{"forwarded", forwarded, nil},
		{"key", keyed, nil},
		{"token seen", signed, nil},
		{"evasive path", evasive, nil},
		{"three headers", plain, []string{"header.user-agent", "header.x-rows", "cookie.theme"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				who.Attributes(bench.request, bench.names...)
			}
		})
	}
	b.Run("token new", func(b *testing.B) {
		claims := with(nil)
		requests := make([]*http.Request, 2000)
		for i := range requests {
			claims["jti"] = i
			requests[i] = signed.Clone(b.Context())
			requests[i].Header.Set("Authorization", "Bearer "+sign(b, jwt.SigningMethodRS256, key, "", claims))
		}
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			if i%len(requests) == 0 {
				b.StopTimer()
				who = resolver(b, options)
				b.StartTimer()
			}
			who.Attributes(requests[i%len(requests)])
		}
	})
}

func BenchmarkPath(b *testing.B) {
	for name, raw := range map[string]string{"normal": "/api/v1/users/4711?page=2", "evasive": "/api//v1/./x/..%2fusers;a=1/47%31%31/"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				identity.Path(raw)
			}
		})
	}
}

func BenchmarkNormalize(b *testing.B) {
	r, err := identity.New(identity.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	attrs := headgate.Attributes{"ip": "192.0.2.1", "path": "/v1/things/7", "method": "GET", "user": "ann", "tenant": "acme"}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Normalize(attrs); err != nil {
			b.Fatal(err)
		}
	}
}
