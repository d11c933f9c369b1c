package identity

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// maxToken is longer than the header lines that servers usually accept.
const maxToken = 16 << 10

// JWT configures which tokens are trusted. The zero value trusts none. A token that is signed differently, has expired, is not yet
// valid, or has another audience or issuer has no claims at all.
//
// Set exactly one of Secret, KeyFile and KeyURL: Secret for HMAC, KeyURL for an identity provider, KeyFile for public keys on disk.
type JWT struct {
	// Algorithms are the accepted signature algorithms, such as "RS256" and "ES256". Required. HS256, HS384 and HS512 need a
	// Secret, the others a KeyFile or a KeyURL.
	Algorithms []string

	// Secret is the key shared with the signer, at least 32 bytes.
	Secret []byte
	// KeyFile is the path of public keys, as a JWK set or PEM. The file is read again when it changes. If it cannot be read, the
	// previous keys stay in use.
	KeyFile string
	// KeyURL is the address of a JWK set: an https URL, or an http URL with a loopback address. It is fetched every 5 minutes, and
	// earlier if no key matches the signature of a token, but at most every 10 seconds. If it cannot be fetched, the previous keys
	// stay in use. Redirects are not followed.
	KeyURL string

	// Issuer is the required value of the claim iss. The default accepts any.
	Issuer string
	// Audience lists accepted values of the claim aud. A token must have at least one of them. The default accepts any.
	Audience []string
	// Leeway is the tolerated clock difference, at most 5 minutes. The default is 0.
	Leeway time.Duration
	// AllowNoExpiry trusts tokens without the claim exp. The default is false.
	AllowNoExpiry bool

	// Header is the header of the token. The default is Authorization, after "Bearer".
	Header string
}

func (j *JWT) isZero() bool {
	return len(j.Algorithms) == 0 && len(j.Secret) == 0 && j.KeyFile == "" && j.KeyURL == ""
}

// check validates the options.
func (j *JWT) check() error {
	if len(j.Algorithms) == 0 {
		return errors.New("algorithms: required: list the algorithms that tokens may be signed with, such as RS256")
	}
	given := 0
	for _, is := range []bool{len(j.Secret) > 0, j.KeyFile != "", j.KeyURL != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return errors.New("set exactly one of Secret, KeyFile and KeyURL")
	}
	for _, algorithm := range j.Algorithms {
		if jwt.GetSigningMethod(algorithm) == nil || algorithm == jwt.SigningMethodNone.Alg() {
			return fmt.Errorf("algorithms: %q: not a signature algorithm: use RS256, ES256, EdDSA, PS256, HS256 or a longer variant",
				algorithm)
		}
		// If a public key were accepted as an HMAC secret, anyone who knows it could sign tokens.
		if shared := strings.HasPrefix(algorithm, "HS"); shared != (len(j.Secret) > 0) {
			return fmt.Errorf("algorithms: %s does not match the key: HS256, HS384 and HS512 need a Secret, the others a KeyFile or KeyURL",
				algorithm)
		}
	}
	if n := len(j.Secret); n > 0 && n < 32 {
		return fmt.Errorf("secret: %d bytes can be guessed: use 32 or more", n)
	}
	if strings.Contains(string(j.Secret), "-----BEGIN") {
		return errors.New("secret: contains a PEM key: use KeyFile, with an algorithm such as RS256")
	}
	if j.Leeway < 0 || j.Leeway > 5*time.Minute {
		return fmt.Errorf("leeway %s: must be 0 to 5m", j.Leeway)
	}
	return nil
}

// Tokens verifies tokens outside of requests. For the tokens of requests, use a Resolver.
type Tokens struct {
	header field
	leeway time.Duration
	parser *jwt.Parser
	keys   *keys
}

// NewTokens returns Tokens. Keys at a URL are fetched in the background; no token is trusted until they have arrived. log receives
// warnings about keys that cannot be read; the default (nil) is slog.Default(). Close the Tokens when they are no longer needed.
func NewTokens(j JWT, log *slog.Logger) (*Tokens, error) {
	if err := j.check(); err != nil {
		return nil, err
	}
	if j.Header == "" {
		j.Header = authorization
	}
	if log == nil {
		log = slog.Default()
	}
	options := []jwt.ParserOption{
		jwt.WithValidMethods(j.Algorithms), jwt.WithJSONNumber(), jwt.WithStrictDecoding(),
		jwt.WithIssuer(j.Issuer), jwt.WithAudience(j.Audience...), jwt.WithLeeway(j.Leeway),
	}
	if !j.AllowNoExpiry {
		options = append(options, jwt.WithExpirationRequired())
	}
	keys, err := newKeys(j, log)
	if err != nil {
		return nil, err
	}
	return &Tokens{header: newField(j.Header), leeway: j.Leeway, parser: jwt.NewParser(options...), keys: keys}, nil
}

// Close stops refreshing keys. Tokens stays usable with its current keys.
func (t *Tokens) Close() { t.keys.close() }

// Claims verifies a token and returns a function that looks up its claims by name, like the attributes claim.NAME of a request. The
// error is the reason why the token is not trusted, and contains no part of the token.
func (t *Tokens) Claims(token string) (claim func(name string) string, err error) {
	claims, err := t.verify(token)
	if err != nil {
		return nil, err
	}
	return func(name string) string { return bounded(claimText(claims, name)) }, nil
}

// claims returns the claims of the call's token, or nil if it has no trusted token.
func (t *Tokens) claims(c *call) map[string]any {
	text := c.value(t.header)
	if token := bearer(text); token != "" || t.header.canonical == authorization {
		text = token
	}
	if text == "" {
		return nil
	}
	claims, err := t.verify(text)
	if err != nil {
		return nil
	}
	return claims
}

// verify returns the claims of a token. A token with an unknown key triggers a refresh of the keys.
func (t *Tokens) verify(text string) (map[string]any, error) {
	if len(text) > maxToken {
		return nil, errUnknownKey
	}
	ring := t.keys.ring.Load()
	if ring == nil {
		return nil, errNoKeys
	}
	sum := sha256.Sum256([]byte(text))
	if claims, ok := ring.verified.get(sum, time.Now()); ok {
		return claims, nil
	}
	claims := jwt.MapClaims{}
	if _, err := t.parser.ParseWithClaims(text, claims, ring.find); err != nil {
		if errors.Is(err, jwt.ErrTokenUnverifiable) || errors.Is(err, jwt.ErrTokenSignatureInvalid) {
			t.keys.refresh()
		}
		return nil, reason(err)
	}
	var until time.Time
	if expiry, err := claims.GetExpirationTime(); err == nil && expiry != nil {
		until = expiry.Add(t.leeway)
	}
	ring.verified.put(sum, claims, until)
	return claims, nil
}

var (
	errNoKeys     = errors.New("keys not yet available")
	errUnknownKey = errors.New("not signed by a known key")
	// reasons are the errors that are returned unchanged. Only the owner of a token can cause them: its signature was valid.
	reasons = []error{
		jwt.ErrTokenExpired, jwt.ErrTokenNotValidYet, jwt.ErrTokenInvalidAudience, jwt.ErrTokenInvalidIssuer,
		jwt.ErrTokenRequiredClaimMissing, jwt.ErrTokenInvalidClaims,
	}
)

// reason reduces an error to one of reasons or errUnknownKey, because its full text may contain a part of the token.
func reason(err error) error {
	for _, known := range reasons {
		if errors.Is(err, known) {
			return known
		}
	}
	return errUnknownKey
}

// claimText returns a claim as text, or "". Dots in a name select nested claims, although a claim's own name may also contain dots.
// Lists, objects and fractions have no text.
func claimText(claims map[string]any, name string) string {
	switch value := claims[name].(type) {
	case string:
		return value
	case bool:
		if value {
			return "true"
		}
		return "false"
	case json.Number:
		if strings.Trim(value.String(), "-0123456789") == "" {
			return value.String()
		}
		return ""
	}
	for i := range len(name) {
		if name[i] != '.' {
			continue
		}
		if inner, ok := claims[name[:i]].(map[string]any); ok {
			return claimText(inner, name[i+1:])
		}
	}
	return ""
}
