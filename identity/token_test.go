package identity_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
)

// rsaKeys are generated once, because it is slow.
var rsaKeys = sync.OnceValue(func() [2]*rsa.PrivateKey {
	var keys [2]*rsa.PrivateKey
	for i := range keys {
		keys[i], _ = rsa.GenerateKey(rand.Reader, 2048)
	}
	return keys
})

var sharedSecret = []byte(strings.Repeat("shared secret, ", 3))

func sign(t testing.TB, method jwt.SigningMethod, key any, kid string, claims jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// with returns claims that are valid for an hour, and more.
func with(more jwt.MapClaims) jwt.MapClaims {
	claims := jwt.MapClaims{"sub": "ada", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(claims, more)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

func without(claim string) jwt.MapClaims { return with(jwt.MapClaims{claim: nil}) }

func carrying(token string) *http.Request {
	return &http.Request{RemoteAddr: "192.0.2.1:1", Header: http.Header{"Authorization": {"Bearer " + token}}}
}

func pemOf(t testing.TB, public any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func writeFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(t.TempDir(), name)
	}
	// Replace the file atomically.
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
	return name
}

type jwk map[string]string

func rsaJWK(kid string, key *rsa.PrivateKey) jwk {
	b64 := base64.RawURLEncoding.EncodeToString
	return jwk{"kty": "RSA", "kid": kid, "n": b64(key.N.Bytes()), "e": b64(big.NewInt(int64(key.E)).Bytes())}
}

func jwkSet(t testing.TB, keys ...jwk) []byte {
	t.Helper()
	set, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestTokens(t *testing.T) {
	t.Parallel()
	key, foreign := rsaKeys()[0], rsaKeys()[1]
	public := pemOf(t, key.Public())
	who := resolver(t, identity.Options{
		TrustedProxies: behindProxies.TrustedProxies,
		JWT: identity.JWT{
			Algorithms: []string{"RS256"}, KeyFile: writeFile(t, "key.pem", public),
			Issuer: "https://issuer.example", Audience: []string{"api", "web"},
		},
	})
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	ours := func(more jwt.MapClaims) jwt.MapClaims {
		claims := with(jwt.MapClaims{"iss": "https://issuer.example", "aud": "api"})
		maps.Copy(claims, more)
		maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
		return claims
	}
	good := sign(t, jwt.SigningMethodRS256, key, "", ours(nil))
	parts := strings.Split(good, ".")
	forged := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"eve","exp":9999999999,"iss":"https://issuer.example","aud":"api"}`))
	tests := map[string]struct {
		token string
		user  string
	}{
		"good":                {good, "ada"},
		"one of the audience": {sign(t, jwt.SigningMethodRS256, key, "any", ours(jwt.MapClaims{"aud": []string{"x", "web"}})), "ada"},
		"alg none":            {sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", ours(nil)), ""},
		"alg none, signed":    {sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "", ours(nil)) + parts[2], ""},
		"public key as secret": {
			sign(t, jwt.SigningMethodHS256, public, "", ours(nil)), "",
		},
		"algorithm not allowed": {sign(t, jwt.SigningMethodRS512, key, "", ours(nil)), ""},
		"other key":             {sign(t, jwt.SigningMethodRS256, foreign, "", ours(nil)), ""},
		"claims exchanged":      {parts[0] + "." + forged + "." + parts[2], ""},
		"no signature":          {parts[0] + "." + parts[1] + ".", ""},
		"two parts":             {parts[0] + "." + parts[1], ""},
		"nonsense":              {"nonsense", ""},
		"expired":               {sign(t, jwt.SigningMethodRS256, key, "", ours(jwt.MapClaims{"exp": at(-time.Second)})), ""},
		"no expiry":             {sign(t, jwt.SigningMethodRS256, key, "", ours(jwt.MapClaims{"exp": nil})), ""},
		"invalid expiry":        {sign(t, jwt.SigningMethodRS256, key, "", ours(jwt.MapClaims{"exp": "never"})), ""},
		"not yet":               {sign(t, jwt.SigningMethodRS256, key, "", ours(jwt.MapClaims{"nbf": at(time.Minute)})), ""},
		"other issuer":          {sign(t, jwt.SigningMethodRS256, key, "", ours(jwt.MapClaims{"iss": "https://issuer.example/"})), ""},
		"no issuer":             {sign(t, jwt.SigningMethodRS256, key, "", ours(jwt.MapClaims{"iss": nil})), ""},
		"other audience":        {sign(t, jwt.SigningMethodRS256, key, "", ours(jwt.MapClaims{"aud": "other"})), ""},
		"no audience":           {sign(t, jwt.SigningMethodRS256, key, "", ours(jwt.MapClaims{"aud": nil})), ""},
		"too long":              {sign(t, jwt.SigningMethodRS256, key, "", ours(jwt.MapClaims{"x": strings.Repeat("x", 20_000)})), ""},
	}
	for name, test := range tests {
		for range 2 { // the second time it may be cached
			got := who.Attributes(carrying(test.token), "claim.sub", "claim.iss")
			if got["user"] != test.user || got["claim.sub"] != test.user || (got["claim.iss"] == "") != (test.user == "") {
				t.Errorf("%s: %v, want the user %q", name, got, test.user)
			}
		}
	}

	r := carrying(good)
	r.RemoteAddr = "10.0.0.1:1"
	r.Header.Set("X-User-Id", "eve")
	if got := who.Attributes(r)["user"]; got != "ada" {
		t.Errorf("header eve, token ada: user %q", got)
	}
	r.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + tests["one of the audience"].token}
	if got := who.Attributes(r)["user"]; got != "eve" {
		t.Errorf("with two tokens: user %q", got)
	}
	for line, want := range map[string]string{"bearer   " + good: "ada", good: "", "Basic " + good: "", "Bearer": ""} {
		got := who.Attributes(&http.Request{Header: http.Header{"Authorization": {line}}})["user"]
		if got != want {
			t.Errorf("authorization %.9q: user %q, want %q", line, got, want)
		}
	}
	if got := who.Metadata(map[string][]string{"authorization": {"Bearer " + good}}, nil, "/s/m")["user"]; got != "ada" {
		t.Errorf("in metadata: user %q", got)
	}
}

func TestKindsOfKeys(t *testing.T) {
	t.Parallel()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edPublic, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := rsaKeys()[0]
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&key.PublicKey)})
	b64 := base64.RawURLEncoding.EncodeToString
	signing, other, encrypting := rsaJWK("a", key), rsaJWK("b", key), rsaJWK("c", key)
	other["alg"], encrypting["use"] = "PS256", "enc"
	set := jwkSet(t, jwk{"kty": "later"}, signing, other, encrypting, jwk{"kty": "oct", "kid": "d", "k": b64(sharedSecret)},
		jwk{"kty": "OKP", "crv": "Ed25519", "kid": "e", "x": b64(edPublic)})

	tests := map[string]struct {
		algorithms []string
		keys       []byte // nil means the secret
		token      string
		user       string
	}{
		"ES256": {[]string{"ES256"}, pemOf(t, ec.Public()), sign(t, jwt.SigningMethodES256, ec, "", with(nil)), "ada"},
		"EdDSA": {[]string{"EdDSA"}, pemOf(t, edPublic), sign(t, jwt.SigningMethodEdDSA, ed, "", with(nil)), "ada"},
		"PS256": {[]string{"PS256"}, pkcs1, sign(t, jwt.SigningMethodPS256, key, "", with(nil)), "ada"},
		"HS256": {[]string{"HS256"}, nil, sign(t, jwt.SigningMethodHS256, sharedSecret, "", with(nil)), "ada"},
		"two keys in PEM": {
			[]string{"ES256", "RS256"},
			append(pemOf(t, ec.Public()), pkcs1...), sign(t, jwt.SigningMethodRS256, key, "", with(nil)), "ada",
		},
		"set":                     {[]string{"RS256"}, set, sign(t, jwt.SigningMethodRS256, key, "a", with(nil)), "ada"},
		"set, Ed25519":            {[]string{"RS256", "EdDSA"}, set, sign(t, jwt.SigningMethodEdDSA, ed, "e", with(nil)), "ada"},
		"set, no kid":             {[]string{"RS256"}, set, sign(t, jwt.SigningMethodRS256, key, "", with(nil)), "ada"},
		"set, unknown kid":        {[]string{"RS256"}, set, sign(t, jwt.SigningMethodRS256, key, "z", with(nil)), ""},
		"set, key for another":    {[]string{"RS256", "PS256"}, set, sign(t, jwt.SigningMethodRS256, key, "b", with(nil)), ""},
		"set, key for encryption": {[]string{"RS256"}, set, sign(t, jwt.SigningMethodRS256, key, "c", with(nil)), ""},
		"set with a secret":       {[]string{"RS256"}, set, sign(t, jwt.SigningMethodHS256, sharedSecret, "d", with(nil)), ""},
		"wrong secret":            {[]string{"HS256"}, nil, sign(t, jwt.SigningMethodHS256, sharedSecret[1:], "", with(nil)), ""},
		"secret with other HS":    {[]string{"HS256"}, nil, sign(t, jwt.SigningMethodHS512, sharedSecret, "", with(nil)), ""},
		"kid is not a string":     {[]string{"RS256"}, set, numberedKid(t, key), "ada"},
		"no token":                {[]string{"HS256"}, nil, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := identity.JWT{Algorithms: test.algorithms, Secret: sharedSecret}
			if test.keys != nil {
				j.Secret, j.KeyFile = nil, writeFile(t, "keys", test.keys)
			}
			if got := resolver(t, identity.Options{JWT: j}).Attributes(carrying(test.token))["user"]; got != test.user {
				t.Errorf("user %q, want %q", got, test.user)
			}
		})
	}

	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, keys := range map[string][]byte{
		"no key for RS256":       pemOf(t, ec.Public()),
		"not a public key":       pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"not a JWK set":          []byte("{"),
		"no key for RS256 found": []byte(`{"keys":[]}`),
	} {
		_, err := identity.New(identity.Options{JWT: identity.JWT{Algorithms: []string{"RS256"}, KeyFile: writeFile(t, "keys", keys)}})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one with %q", err, name)
		}
	}
}

func numberedKid(t *testing.T, key *rsa.PrivateKey) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, with(nil))
	token.Header["kid"] = 7
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestClaims(t *testing.T) {
	t.Parallel()
	who := resolver(t, identity.Options{
		JWT:            identity.JWT{Algorithms: []string{"HS256"}, Secret: sharedSecret, Header: "X-Token", AllowNoExpiry: true},
		User:           []string{"claim.email", "claim.sub"},
		ServiceAccount: []string{"claim.client"},
		Tenant:         []string{"claim.org.id"},
		Tier:           []string{"claim.https://example.com/tier"},
	})
	claims := without("exp")
	maps.Copy(claims, jwt.MapClaims{
		"org": map[string]any{"id": 9007199254740993, "deep": map[string]any{"er": true}}, "https://example.com/tier": "gold",
		"https://example.com/org": map[string]any{"name": "acme"},
		"big":                     1_000_000_000, "minus": -5, "yes": true, "no": false, "half": 0.5, "exponent": json.Number("1e9"), "null": nil,
		"list": []string{"a"}, "empty": "", "spaces": "  ", "client": " robot ", "long": strings.Repeat("x", 300), "a.b": "dotted",
	})
	token := sign(t, jwt.SigningMethodHS256, sharedSecret, "", claims)
	var names []string
	for _, name := range []string{
		"org", "org.id", "org.deep.er", "org.none", "org.id.x", "https://example.com/org.name", "big", "minus", "yes", "no", "half",
		"exponent", "null", "list", "empty", "spaces", "long", "a.b", "absent", "",
	} {
		names = append(names, "claim."+name)
	}
	want := headgate.Attributes{
		"ip": "192.0.2.1", "method": "GET", "path": "/",
		"user": "ada", "service_account": "robot", "tenant": "9007199254740993", "tier": "gold",
		"claim.org.id": "9007199254740993", "claim.org.deep.er": "true", "claim.https://example.com/org.name": "acme",
		"claim.big": "1000000000", "claim.minus": "-5", "claim.yes": "true", "claim.no": "false",
		"claim.long": headgate.HashKey(strings.Repeat("x", 300)), "claim.a.b": "dotted",
	}
	for _, line := range []string{token, "Bearer " + token} {
		r := &http.Request{RemoteAddr: "192.0.2.1:1", Header: http.Header{"X-Token": {line}}}
		if got := who.Attributes(r, names...); !maps.Equal(got, want) {
			t.Errorf("attributes\n%v, want\n%v", got, want)
		}
	}
}

func TestCachedTokensExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		who := resolver(t, identity.Options{
			JWT: identity.JWT{Algorithms: []string{"HS256"}, Secret: sharedSecret, Leeway: 10 * time.Second},
		})
		r := carrying(sign(t, jwt.SigningMethodHS256, sharedSecret, "", with(jwt.MapClaims{
			"nbf": time.Now().Add(15 * time.Second).Unix(), "exp": time.Now().Add(time.Minute).Unix(),
		})))
		for _, test := range []struct {
			after time.Duration
			user  string
		}{
			{0, ""},
			{4 * time.Second, ""},
			{1 * time.Second, "ada"}, // nbf minus leeway
			{64 * time.Second, "ada"},
			{1 * time.Second, ""}, // exp plus leeway
		} {
			time.Sleep(test.after)
			if got := who.Attributes(r)["user"]; got != test.user {
				t.Errorf("at %s: user %q, want %q", time.Now().Format(time.TimeOnly), got, test.user)
			}
		}
	})
}

// TestTokensOutsideRequests tests that Claims reads tokens as requests do, and that errors contain no part of them.
func TestTokensOutsideRequests(t *testing.T) {
	t.Parallel()
	key := rsaKeys()[0]
	tokens, err := identity.NewTokens(identity.JWT{
		Algorithms: []string{"RS256"}, KeyFile: writeFile(t, "key.pem", pemOf(t, key.Public())),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	claim, err := tokens.Claims(sign(t, jwt.SigningMethodRS256, key, "", with(jwt.MapClaims{"org": jwt.MapClaims{"id": 7}})))
	if err != nil || claim("sub") != "ada" || claim("org.id") != "7" || claim("none") != "" {
		t.Error(err)
	}
	for token, want := range map[string]string{
		sign(t, jwt.SigningMethodRS256, key, "", with(jwt.MapClaims{"exp": 1})): "token is expired",
		sign(t, jwt.SigningMethodRS256, rsaKeys()[1], "", with(nil)):            "not signed by a known key",
		"x.y.z": "not signed by a known key",
		"":      "not signed by a known key",
	} {
		if _, err := tokens.Claims(token); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	quiet := slog.New(slog.DiscardHandler)
	waiting, err := identity.NewTokens(identity.JWT{Algorithms: []string{"RS256"}, KeyURL: broken.URL}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if _, err := waiting.Claims("x.y.z"); err == nil || err.Error() != "keys not yet available" {
		t.Error(err)
	}
}
