package headgate

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// reserved is one limit's part of a reservation in a token. It has everything that is needed to settle the part, so that any node
// can do so, even after the rules have changed.
type reserved struct {
	Rule, Name string
	Subject    Subject
	Counter    Counter
	Limit      Limit
	Origin     Origin
	Observe    bool
	Exposed    bool
	// Held is false if the units were recorded at once.
	Held bool
	// Home is whether the subject's home region counts it.
	Home bool
	// Whole is the limit of which Limit is this region's share; zero if the limit is not shared.
	Whole   Limit
	Receipt Receipt
	// Unit is the rule's cost of a request with Request.Cost 1, and Cost the cost that was asked for, in addition to Settled.
	Unit, Cost int64
	// Settled is the cost that earlier parts of an extended reservation have settled.
	Settled int64
	// RefundBefore is the time in microseconds since 1970 from which prepaid units are not given back; 0 if they are not prepaid.
	RefundBefore int64
	// Units are the costs by all rules that charge the counter, if there are other rules than Rule that do.
	Units []reservedUnit
}

// reservedUnit is the cost of a request with Request.Cost 1 by a rule.
type reservedUnit struct {
	Rule string
	Unit int64
}

const (
	// TokenVersion is the version of the tokens of reservations. Tokens of another version are not accepted.
	TokenVersion = 5

	tokenNonce = 8
	tokenMAC   = 16
	// maxToken is the largest token in bytes: in base64 it fits into a call of 64 kB together with the rest of the call.
	maxToken = 40 << 10
)

// seal returns a signed token for the parts, or nil if there are none. A caller with a token can settle that reservation and
// nothing else.
func seal(key []byte, parts []reserved) []byte {
	if len(parts) == 0 {
		return nil
	}
	b := []byte{TokenVersion}
	b = binary.LittleEndian.AppendUint64(b, rand.Uint64()) //nolint:gosec // it only distinguishes reservations of equal units
	for i := range parts {
		p := &parts[i]
		zone := ""
		if p.Limit.TimeZone != nil {
			zone = p.Limit.TimeZone.String()
		}
		b = appendPart(appendPart(b, p.Rule), p.Name)
		b = append(b, p.Subject[:]...)
		b = appendPart(b, zone)
		for _, n := range [...]int64{
			int64(p.Counter), int64(p.Origin), flag(p.Observe) | flag(p.Exposed)<<1 | flag(p.Held)<<2 | flag(p.Receipt.Local)<<3 |
				flag(len(p.Units) > 0)<<4 | flag(p.Home)<<5 | flag(p.Whole.Count > 0)<<6,
			p.Unit, p.Cost, p.Settled, p.RefundBefore,
			int64(p.Limit.Algorithm), p.Limit.Count, int64(p.Limit.Window), p.Limit.Burst, int64(p.Limit.Align),
			int64(p.Limit.Calendar), int64(p.Limit.AnchorDay),
			p.Receipt.Units, p.Receipt.Mark, p.Receipt.Time, p.Receipt.Empty, p.Receipt.Back,
		} {
			b = binary.AppendVarint(b, n)
		}
		if p.Whole.Count > 0 {
			for _, n := range [...]int64{p.Whole.Count, int64(p.Whole.Window), p.Whole.Burst, int64(p.Whole.Align)} {
				b = binary.AppendVarint(b, n)
			}
		}
		if len(p.Units) == 0 {
			continue
		}
		b = binary.AppendVarint(b, int64(len(p.Units)))
		for _, u := range p.Units {
			b = binary.AppendVarint(appendPart(b, u.Rule), u.Unit)
		}
	}
	return append(b, sign(key, b)...)
}

// sealBounded returns a signed token, or an error if it would be too long.
func sealBounded(key []byte, parts []reserved) ([]byte, error) {
	token := seal(key, parts)
	if len(token) > maxToken {
		return nil, fmt.Errorf("reservation on %d limits: token is %d bytes, must be at most %d: match fewer rules", len(parts), len(token), maxToken)
	}
	return token, nil
}

// deriveKey derives the key that signs tokens from a secret; it returns nil if the secret is empty. The key is bound to the store's
// namespace: a token is not valid for other counters with the same secret.
func deriveKey(secret []byte, store Store) []byte {
	if len(secret) == 0 {
		return nil
	}
	namespace := ""
	if signer, ok := store.(Signer); ok {
		namespace = signer.Namespace()
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("reservation\x00" + namespace))
	return mac.Sum(nil)
}

// signingKeys returns the keys that tokens may be signed with. The first one signs new tokens.
func (l *Limiter) signingKeys(ctx context.Context) ([][]byte, error) {
	if l.signing != nil {
		return [][]byte{l.signing}, nil
	}
	var keys [][]byte
	if signer, ok := l.store.(Signer); ok {
		var err error
		if keys, err = signer.SigningKeys(context.WithoutCancel(ctx)); err != nil {
			return nil, fmt.Errorf("reservation signing key: %w: retry, or configure the same secret on all nodes", err)
		}
	}
	for _, key := range keys {
		if len(key) == 0 {
			keys = nil
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("reservation signing key: %w: the store has none: configure the same secret on all nodes", ErrUnavailable)
	}
	return keys, nil
}

// sign returns the MAC of a token.
func sign(key, b []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(b)
	return mac.Sum(nil)[:tokenMAC]
}

// open parses a token that is signed with one of the keys. Its error is ErrInvalidToken.
func (l *Limiter) open(token []byte, keys [][]byte, set *RuleSet) ([]reserved, error) {
	n := len(token) - tokenMAC
	if n < 1+tokenNonce || n > maxToken || token[0] != TokenVersion {
		return nil, ErrInvalidToken
	}
	if !slices.ContainsFunc(keys, func(key []byte) bool { return hmac.Equal(token[n:], sign(key, token[:n])) }) {
		return nil, ErrInvalidToken
	}
	r := tokenReader{rest: token[1+tokenNonce : n]}
	var parts []reserved
	for len(r.rest) > 0 && !r.broken {
		p := reserved{Rule: r.text(), Name: r.text()}
		copy(p.Subject[:], r.bytes(len(p.Subject)))
		zone := r.text()
		p.Counter, p.Origin = Counter(r.number()), Origin(r.number())
		flags := r.number()
		p.Observe, p.Exposed, p.Held, p.Home = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&32 != 0
		p.Unit, p.Cost, p.Settled, p.RefundBefore = r.number(), r.number(), r.number(), r.number()
		p.Limit = Limit{
			Algorithm: Algorithm(r.number()), Count: r.number(), Window: time.Duration(r.number()), Burst: r.number(),
			Align: Align(r.number()), Calendar: Calendar(r.number()), AnchorDay: int(r.number()),
		}
		p.Receipt = Receipt{
			Units: r.number(), Mark: r.number(), Time: r.number(), Empty: r.number(), Back: r.number(), Local: flags&8 != 0,
		}
		if flags&64 != 0 {
			p.Whole = p.Limit
			p.Whole.Count, p.Whole.Window, p.Whole.Burst = r.number(), time.Duration(r.number()), r.number()
			p.Whole.Align = Align(r.number())
		}
		if flags&16 != 0 {
			for n := r.number(); n > 0 && !r.broken; n-- {
				p.Units = append(p.Units, reservedUnit{r.text(), r.number()})
			}
		}
		if zone != "" {
			p.Limit.TimeZone = set.zone(p.Rule, zone)
			p.Whole.TimeZone = p.Limit.TimeZone
		}
		parts = append(parts, p)
	}
	if r.broken {
		return nil, ErrInvalidToken
	}
	return parts, nil
}

// zone returns a time zone by name: the zone of one of the rule's limits if it has that name, which is the usual case and avoids
// loading it.
func (s *RuleSet) zone(rule, name string) *time.Location {
	if n, ok := s.byID[rule]; ok {
		for i := range s.rules[n].limits {
			if z := s.rules[n].limits[i].limit.TimeZone; z != nil && z.String() == name {
				return z
			}
		}
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		return nil // UTC: the units are counted, although in another window
	}
	return z
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// tokenReader decodes a token sequentially. broken is set if the token is too short or malformed.
type tokenReader struct {
	rest   []byte
	broken bool
}

func (r *tokenReader) number() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.broken = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *tokenReader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.broken = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *tokenReader) text() string {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > uint64(len(r.rest)-n) {
		r.broken = true
		return ""
	}
	r.rest = r.rest[n:]
	return string(r.bytes(int(v)))
}
