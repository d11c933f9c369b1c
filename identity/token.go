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

// maxToken is longer than the header lines that servers usually take.
const maxToken = 16 << 10

// JWT says which tokens are believed. The zero value is none. A token that is signed otherwise, has expired, is not yet
// valid, or is meant for somebody else has no claims at all.
type JWT struct {
	// Algorithms are the only ones a token may be signed with: "RS256", "ES256". They go with the keys: HS256, HS384 and
	// HS512 with a Secret, the others with a KeyFile or a KeyURL.
	Algorithms []string

	// Secret is shared with whoever signs; 32 bytes or more.
	Secret []byte
	// KeyFile holds public keys, as a JWK set or as PEM. It is read again when it changes; if it cannot be, the keys stay.
	KeyFile string
	// KeyURL is where a JWK set is: an https URL, or an http URL with a loopback address. It is read again every few
	// minutes, and sooner when a token has a signature that no key explains; if it cannot be, the keys stay. Redirects are not
	// followed.
	KeyURL string

	// Issuer, if given, is what the claim iss must be.
	Issuer string
	// Audience, if given, has the values of which the claim aud must have one.
	Audience []string
	// Leeway is how far clocks may differ, up to 5 minutes.
	Leeway time.Duration
	// AllowNoExpiry believes tokens without the claim exp.
	AllowNoExpiry bool

	// Header is where the token is; the default is Authorization, behind "Bearer".
	Header string
}

func (j *JWT) isZero() bool {
	return len(j.Algorithms) == 0 && len(j.Secret) == 0 && j.KeyFile == "" && j.KeyURL == ""
}

// check says what is wrong, and what to write instead.
func (j *JWT) check() error {
	if len(j.Algorithms) == 0 {
		return errors.New("name the Algorithms that tokens may be signed with, such as RS256")
	}
	given := 0
	for _, is := range []bool{len(j.Secret) > 0, j.KeyFile != "", j.KeyURL != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return errors.New("give one of Secret, KeyFile and KeyURL")
	}
	for _, algorithm := range j.Algorithms {
		if jwt.GetSigningMethod(algorithm) == nil || algorithm == jwt.SigningMethodNone.Alg() {
			return fmt.Errorf("%q is not an algorithm that signs: write RS256, ES256, EdDSA, PS256, HS256 or one of their kin",
				algorithm)
		}
		// A public key is no secret: whoever knows it could sign with it if it were taken for one.
		if shared := strings.HasPrefix(algorithm, "HS"); shared != (len(j.Secret) > 0) {
			return fmt.Errorf("%s does not go with this key: HS256, HS384 and HS512 need a Secret, the others a KeyFile or KeyURL",
				algorithm)
		}
	}
	if n := len(j.Secret); n > 0 && n < 32 {
		return fmt.Errorf("a secret of %d bytes can be guessed: take 32 or more", n)
	}
	if strings.Contains(string(j.Secret), "-----BEGIN") {
		return errors.New("the Secret is in PEM, so it is a key: give it as KeyFile, with an algorithm such as RS256")
	}
	if j.Leeway < 0 || j.Leeway > 5*time.Minute {
		return fmt.Errorf("a leeway of %s is out of bounds: write 0 to 5m", j.Leeway)
	}
	return nil
}

// Tokens verifies tokens that stand alone. A Resolver does it for those that requests carry.
type Tokens struct {
	header field
	leeway time.Duration
	parser *jwt.Parser
	keys   *keys
}

// NewTokens is ready at once: keys that are at a URL are fetched in the background, and until they are there no token is
// believed. log is told of keys that cannot be had; nil means slog.Default(). Close the tokens when they are no longer
// needed.
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

// Close stops the watch over keys. Tokens can still be verified, with the keys at hand.
func (t *Tokens) Close() { t.keys.close() }

// Claims reads a token's claims by their names, as attributes claim.NAME of a request are read. The error says why the
// token is not believed, and shows nothing of it.
func (t *Tokens) Claims(token string) (claim func(name string) string, err error) {
	claims, err := t.verify(token)
	if err != nil {
		return nil, err
	}
	return func(name string) string { return bounded(claimText(claims, name)) }, nil
}

// claims are those of the call's token, or nil if there is none that can be believed.
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

func (t *Tokens) verify(text string) (map[string]any, error) {
	if len(text) > maxToken {
		return nil, errNotOurs
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
	errNoKeys  = errors.New("the keys to verify it with are not there yet")
	errNotOurs = errors.New("no key that is known has signed it")
	// reasons are those of which only the owner of a token learns: its signature was right.
	reasons = []error{
		jwt.ErrTokenExpired, jwt.ErrTokenNotValidYet, jwt.ErrTokenInvalidAudience, jwt.ErrTokenInvalidIssuer,
		jwt.ErrTokenRequiredClaimMissing, jwt.ErrTokenInvalidClaims,
	}
)

// reason leaves out what an error says besides, which may be a part of the token.
func reason(err error) error {
	for _, known := range reasons {
		if errors.Is(err, known) {
			return known
		}
	}
	return errNotOurs
}

// claimText is a claim as text, or "". Claims inside of others are named with dots, though a claim's own name may have
// dots too. Lists, objects and fractions are not text.
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
