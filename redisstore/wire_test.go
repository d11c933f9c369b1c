package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// oneOfEach returns a charge of each algorithm.
func oneOfEach() []headgate.Charge {
	var charges []headgate.Charge
	for a := headgate.TokenBucket; a <= headgate.Concurrency; a++ {
		charges = append(charges, headgate.Charge{
			Subject: headgate.SubjectOf("wire"), Counter: headgate.CounterOf("wire", "", a), Cost: 1,
			Limit: headgate.Limit{Algorithm: a, Count: 10, Window: time.Minute},
		})
	}
	return charges
}

// TestReplyIsWhole checks that a truncated or too long reply is an error.
func TestReplyIsWhole(t *testing.T) {
	t.Parallel()
	s := open(t, standalone(startServer(t)))
	charges, results := oneOfEach(), make([]headgate.Result, 6)
	if err := s.Take(t.Context(), charges, results); err != nil {
		t.Fatal(err)
	}
	keys, keyOf := s.keys(charges, nil, nil)
	client, err := s.client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	msg, err := s.run(t.Context(), client, s.take, keys, encode(charges, keyOf, time.Now())...)
	if err != nil {
		t.Fatal(err)
	}
	complete, err := msg.AsBytes()
	if err != nil {
		t.Fatal(err)
	}
	for n := replyHead; n <= len(complete); n++ {
		g := group{charges: charges, results: results, reply: complete[:n]}
		if _, err := g.evaluate(false); errors.Is(err, errReply) != (n < len(complete)) {
			t.Errorf("%d of %d bytes: %v", n, len(complete), err)
		}
	}
	g := group{charges: charges, results: results, reply: append(complete, 0)}
	if _, err := g.evaluate(false); !errors.Is(err, errReply) {
		t.Errorf("one byte more: %v", err)
	}
}

// FuzzReply checks that reading any reply ends without a panic.
func FuzzReply(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(_ *testing.T, reply []byte) {
		g := group{charges: oneOfEach(), results: make([]headgate.Result, 6), reply: reply, time: time.Now()}
		_, _ = g.evaluate(false)
		_, _ = g.evaluate(true)
	})
}
