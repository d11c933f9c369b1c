package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// every is a charge of each algorithm.
func every() []headgate.Charge {
	var charges []headgate.Charge
	for a := headgate.TokenBucket; a <= headgate.SlidingLog; a++ {
		charges = append(charges, headgate.Charge{
			Subject: headgate.SubjectOf("wire"), Counter: headgate.CounterOf("wire", "", a), Cost: 1,
			Limit: headgate.Limit{Algorithm: a, Count: 10, Window: time.Minute},
		})
	}
	return charges
}

// TestReplyIsWhole: a reply that is cut short or too long is an error, wherever.
func TestReplyIsWhole(t *testing.T) {
	t.Parallel()
	s := open(t, standalone(startServer(t)))
	charges, results := every(), make([]headgate.Result, 5)
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
	whole, err := msg.AsBytes()
	if err != nil {
		t.Fatal(err)
	}
	for n := replyHead; n <= len(whole); n++ {
		g := group{charges: charges, results: results, reply: whole[:n]}
		if _, err := g.evaluate(false); errors.Is(err, errReply) != (n < len(whole)) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	g := group{charges: charges, results: results, reply: append(whole, 0)}
	if _, err := g.evaluate(false); !errors.Is(err, errReply) {
		t.Errorf("one byte more: %v", err)
	}
}

// FuzzReply: whatever a server answers, reading it ends and does not panic.
func FuzzReply(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(_ *testing.T, answer []byte) {
		g := group{charges: every(), results: make([]headgate.Result, 5), reply: answer, time: time.Now()}
		_, _ = g.evaluate(false)
		_, _ = g.evaluate(true)
	})
}
