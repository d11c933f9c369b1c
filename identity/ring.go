package identity

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
)

// ring is a set of keys, with a cache of the tokens that they verified.
type ring struct {
	keys     []key
	verified verifiedTokens
}

type key struct {
	id, algorithm string // empty if not specified
	key           any
}

// newRing parses a JWK set or PEM. It omits keys that fit none of the algorithms: they must not be tried.
func newRing(ctx context.Context, document []byte, algorithms []string) (*ring, error) {
	var all []key
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(document), []byte("{")) {
		all, err = parseSet(ctx, document)
	} else {
		all, err = parsePEM(document)
	}
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(k key) bool {
		return !slices.ContainsFunc(algorithms, k.fits)
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("no key for %s found", strings.Join(algorithms, ", "))
	}
	return &ring{keys: all}, nil
}

// parseSet parses a JWK set. It skips unsupported keys: a set may contain keys for other programs.
func parseSet(ctx context.Context, document []byte) ([]key, error) {
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, fmt.Errorf("not a JWK set: %w", err)
	}
	var all []key
	for _, raw := range set.Keys {
		parsed, err := keyfunc.NewJWKJSON(raw)
		if err != nil {
			continue
		}
		found, err := parsed.Storage().KeyReadAll(ctx)
		if err != nil {
			return nil, err
		}
		for _, jwk := range found {
			if m := jwk.Marshal(); m.USE == "" || m.USE == "sig" {
				all = append(all, key{id: m.KID, algorithm: m.ALG.String(), key: public(jwk.Key())})
			}
		}
	}
	return all, nil
}

// parsePEM parses public keys and certificates in PEM.
func parsePEM(document []byte) ([]key, error) {
	var all []key
	for {
		var block *pem.Block
		if block, document = pem.Decode(document); block == nil {
			break
		}
		var found any
		var err error
		switch block.Type {
		case "PUBLIC KEY":
			found, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			found, err = x509.ParsePKCS1PublicKey(block.Bytes)
		case "CERTIFICATE":
			var certificate *x509.Certificate
			if certificate, err = x509.ParseCertificate(block.Bytes); err == nil {
				found = certificate.PublicKey
			}
		default:
			err = errors.New("not a public key")
		}
		if err != nil {
			return nil, fmt.Errorf("PEM block %q: %w", block.Type, err)
		}
		all = append(all, key{key: found})
	}
	if all == nil {
		return nil, errors.New("neither a JWK set nor PEM")
	}
	return all, nil
}

// public returns the public key of a private key, and any other key unchanged.
func public(key any) any {
	if private, ok := key.(crypto.Signer); ok {
		return private.Public()
	}
	return key
}

// fits reports whether the key may verify signatures of an algorithm.
func (k key) fits(algorithm string) bool {
	if k.algorithm != "" && k.algorithm != algorithm {
		return false
	}
	family := algorithm[:2]
	switch k.key.(type) {
	case []byte:
		return family == "HS"
	case *rsa.PublicKey:
		return family == "RS" || family == "PS"
	case *ecdsa.PublicKey:
		return family == "ES"
	case ed25519.PublicKey:
		return algorithm == jwt.SigningMethodEdDSA.Alg()
	}
	return false
}

// find returns the keys that may have signed a token. It is a jwt.Keyfunc. The parser has already checked the algorithm.
func (r *ring) find(token *jwt.Token) (any, error) {
	id, _ := token.Header["kid"].(string)
	var set jwt.VerificationKeySet
	for _, k := range r.keys {
		if (id == "" || k.id == "" || k.id == id) && k.fits(token.Method.Alg()) {
			set.Keys = append(set.Keys, k.key)
		}
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("key not found")
	}
	return set, nil
}
