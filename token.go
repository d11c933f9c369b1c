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

// reserved is what one limit has reserved, as it stands in a token: all that is needed to settle it, so that any node can,
// also after the rules have changed.
type reserved struct {
	Rule, Name string
	Subject    Subject
	Counter    Counter
	Limit      Limit
	Origin     Origin
	Observe    bool
	Exposed    bool
	// Held is false if the units were recorded at once.
	Held    bool
	Receipt Receipt
	// Unit is what the rule said that a request of cost 1 costs, and Cost what the request was expected to.
	Unit, Cost int64
}

const (
	tokenVersion = 4
	tokenNonce   = 8
	tokenMAC     = 16
	// maxToken is what still fits into a call of 64 kB as base64, with what else is in it.
	maxToken = 40 << 10
)

// seal makes a token, or nil of nothing. It is signed: a caller who has a token can settle that reservation and nothing else.
func seal(key []byte, parts []reserved) []byte {
	if len(parts) == 0 {
		return nil
	}
	b := []byte{tokenVersion}
	b = binary.LittleEndian.AppendUint64(b, rand.Uint64()) //nolint:gosec // it tells reservations of equal units apart
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
			int64(p.Counter), int64(p.Origin), flag(p.Observe) | flag(p.Exposed)<<1 | flag(p.Held)<<2 | flag(p.Receipt.Local)<<3,
			p.Unit, p.Cost,
			int64(p.Limit.Algorithm), p.Limit.Count, int64(p.Limit.Window), p.Limit.Burst, int64(p.Limit.Align),
			int64(p.Limit.Calendar), int64(p.Limit.AnchorDay),
			p.Receipt.Units, p.Receipt.Mark, p.Receipt.Time, p.Receipt.Empty, p.Receipt.Back,
		} {
			b = binary.AppendVarint(b, n)
		}
	}
	return append(b, sign(key, b)...)
}

// deriveKey makes the key that tokens are signed with of a secret, or nil of none. It is bound to the store's namespace: a token
// is good for no other counters of the same secret.
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

// signingKeys returns the keys that tokens may be signed with, of which the first one signs.
func (l *Limiter) signingKeys(ctx context.Context) ([][]byte, error) {
	if l.signing != nil {
		return [][]byte{l.signing}, nil
	}
	var keys [][]byte
	if signer, ok := l.store.(Signer); ok {
		var err error
		if keys, err = signer.SigningKeys(context.WithoutCancel(ctx)); err != nil {
			return nil, fmt.Errorf("no key to sign reservations with: %w: try again, or give all nodes the same secret", err)
		}
	}
	for _, key := range keys {
		if len(key) == 0 {
			keys = nil
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no key to sign reservations with: %w: the store has none, give all nodes the same secret", ErrUnavailable)
	}
	return keys, nil
}

func sign(key, b []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(b)
	return mac.Sum(nil)[:tokenMAC]
}

// open reads a token that is signed with one of the keys.
func (l *Limiter) open(token []byte, keys [][]byte, set *RuleSet) ([]reserved, error) {
	n := len(token) - tokenMAC
	if n < 1+tokenNonce || n > maxToken || token[0] != tokenVersion {
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
		p.Observe, p.Exposed, p.Held = flags&1 != 0, flags&2 != 0, flags&4 != 0
		p.Unit, p.Cost = r.number(), r.number()
		p.Limit = Limit{
			Algorithm: Algorithm(r.number()), Count: r.number(), Window: time.Duration(r.number()), Burst: r.number(),
			Align: Align(r.number()), Calendar: Calendar(r.number()), AnchorDay: int(r.number()),
		}
		p.Receipt = Receipt{
			Units: r.number(), Mark: r.number(), Time: r.number(), Empty: r.number(), Back: r.number(), Local: flags&8 != 0,
		}
		if zone != "" {
			p.Limit.TimeZone = set.zone(p.Rule, zone)
		}
		parts = append(parts, p)
	}
	if r.broken {
		return nil, ErrInvalidToken
	}
	return parts, nil
}

// zone is a time zone by name; mostly that of the rule, which is there already.
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
		return nil // UTC: the window is not the same, but something is counted
	}
	return z
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// tokenReader reads a token from front to back.
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
