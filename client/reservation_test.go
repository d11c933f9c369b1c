package client_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/checkgrpc"
)

// recorder is an engine that records calls and returns the method as the decision's version.
type recorder struct {
	*headgate.Limiter
	calls chan recorded
}

type recorded struct {
	method string
	req    headgate.Request
	token  string
	hold   time.Duration
}

func (r *recorder) note(
	method string, req headgate.Request, token []byte, hold time.Duration,
) (headgate.Decision, error) {
	if req.Rule == "nowhere" {
		return headgate.Decision{}, headgate.ErrUnknownRule
	}
	if string(token) == "forged" {
		return headgate.Decision{}, headgate.ErrInvalidToken
	}
	r.calls <- recorded{method, req, string(token), hold}
	return headgate.Decision{Allowed: true, Path: headgate.PathStore, Version: method}, nil
}

func (r *recorder) Peek(_ context.Context, req headgate.Request) (headgate.Decision, error) {
	return r.note("peek", req, nil, 0)
}

func (r *recorder) Refund(_ context.Context, req headgate.Request) (headgate.Decision, error) {
	return r.note("refund", req, nil, 0)
}

func (r *recorder) Reserve(_ context.Context, req headgate.Request, hold time.Duration) (headgate.Reservation, error) {
	d, err := r.note("reserve", req, nil, hold)
	return headgate.Reservation{Decision: d, Token: []byte("token")}, err
}

func (r *recorder) Extend(
	_ context.Context, token []byte, used, expected headgate.Request, hold time.Duration,
) (headgate.Reservation, error) {
	if used.Cost != 5 {
		return headgate.Reservation{}, fmt.Errorf("used %+v", used)
	}
	d, err := r.note("extend", expected, token, hold)
	return headgate.Reservation{Decision: d, Token: []byte("next"), Covered: 6}, err
}

func (r *recorder) Commit(_ context.Context, token []byte, actual headgate.Request) (headgate.Decision, error) {
	return r.note("commit", actual, token, 0)
}

func (r *recorder) Cancel(_ context.Context, token []byte) (headgate.Decision, error) {
	return r.note("cancel", headgate.Request{}, token, 0)
}

func newRecorder(t *testing.T, o checkgrpc.Options) (*recorder, *client.Client) {
	t.Helper()
	engine := &recorder{newLimiter(t), make(chan recorded, 1)}
	server := grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()))
	checkgrpc.New(engine, o).Register(server)
	return engine, newClient(t, client.Options{Addresses: []string{listen(t, server)}, Timeout: patient})
}

func TestReservation(t *testing.T) {
	t.Parallel()
	engine, c := newRecorder(t, checkgrpc.Options{MayRefund: allRefund})
	req := headgate.Request{Attributes: headgate.Attributes{"user": "ada"}, Cost: 7, Rule: "tokens"}
	actual := headgate.Request{Attributes: headgate.Attributes{"user": "ada"}, Cost: 3}
	var token []byte
	for _, test := range []struct {
		want recorded
		call func() (headgate.Decision, error)
	}{
		{recorded{method: "peek", req: req}, func() (headgate.Decision, error) { return c.Peek(t.Context(), req) }},
		{recorded{method: "refund", req: req}, func() (headgate.Decision, error) { return c.Refund(t.Context(), req) }},
		{recorded{method: "reserve", req: req, hold: time.Second}, func() (headgate.Decision, error) {
			held, err := c.Reserve(t.Context(), req, time.Second)
			token = held.Token
			return held.Decision, err
		}},
		{recorded{method: "extend", req: req, token: "token", hold: time.Second}, func() (headgate.Decision, error) {
			held, err := c.Extend(t.Context(), token, headgate.Request{Cost: 5}, req, time.Second)
			if token = held.Token; held.Covered != 6 {
				t.Errorf("%d are covered", held.Covered)
			}
			return held.Decision, err
		}},
		{recorded{method: "commit", req: actual, token: "next"}, func() (headgate.Decision, error) {
			return c.Commit(t.Context(), token, actual)
		}},
		{recorded{method: "cancel", token: "next"}, func() (headgate.Decision, error) {
			return c.Cancel(t.Context(), token)
		}},
	} {
		d, err := test.call()
		if err != nil || !d.Allowed || d.Version != test.want.method {
			t.Fatalf("%s: decision %+v, error %v", test.want.method, d, err)
		}
		if got := <-engine.calls; !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: the server got %+v, want %+v", test.want.method, got, test.want)
		}
	}
}

func TestReservationErrors(t *testing.T) {
	t.Parallel()
	_, c := newRecorder(t, checkgrpc.Options{})
	ctx := t.Context()
	if _, err := c.Commit(ctx, []byte("forged"), headgate.Request{}); !errors.Is(err, headgate.ErrInvalidToken) {
		t.Errorf("commit of a forged token: %v", err)
	}
	if _, err := c.Cancel(ctx, []byte("forged")); !errors.Is(err, headgate.ErrInvalidToken) {
		t.Errorf("cancel of a forged token: %v", err)
	}
	if held, err := c.Extend(ctx, []byte("forged"), headgate.Request{Cost: 5}, headgate.Request{}, 0); !errors.Is(err, headgate.ErrInvalidToken) ||
		string(held.Token) != "forged" || held.Covered != 0 {
		t.Errorf("extension of a forged token: %+v, %v", held, err)
	}
	if _, err := c.Commit(ctx, nil, headgate.Request{Cost: -1}); err == nil || errors.Is(err, headgate.ErrInvalidToken) {
		t.Errorf("commit of a negative cost: %v", err)
	}
	if _, err := c.Peek(ctx, headgate.Request{Rule: "nowhere"}); !errors.Is(err, headgate.ErrUnknownRule) {
		t.Errorf("peek at an unknown rule: %v", err)
	}
	if _, err := c.Reserve(ctx, headgate.Request{}, 2*headgate.MaxHold); err == nil {
		t.Error("reserve for too long: no error")
	}
	if _, err := c.Refund(ctx, headgate.Request{}); err == nil {
		t.Error("refund where refunds are disabled: no error")
	}
	if _, err := c.Check(ctx, headgate.Request{Cost: -1}); err == nil {
		t.Error("check of a negative cost: no error")
	}
	if d, err := c.Peek(ctx, by("\xff")); err != nil || failed(d) != nil {
		t.Errorf("peek with invalid UTF-8: decision %+v, error %v", d, err)
	}
}

// TestReservationWithoutResponse tests a server that never responds to calls and is considered hung.
func TestReservationWithoutResponse(t *testing.T) {
	t.Parallel()
	engine := &recorder{newLimiter(t), make(chan recorded)} // unbuffered and not read: calls block
	server := grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()))
	checkgrpc.New(engine, checkgrpc.Options{}).Register(server)
	var log journal
	address := listen(t, server)
	t.Cleanup(func() {
		for {
			select {
			case <-engine.calls:
			case <-time.After(10 * time.Millisecond):
				return
			}
		}
	})
	c := newClient(t, client.Options{Addresses: []string{address}, Timeout: 50 * time.Millisecond, Log: log.logger()})
	eventually(t, "the client is connected", func() bool { return failed(check(t, c, "u")) == nil })
	for range 5 {
		held, err := c.Reserve(t.Context(), by("u"), 0)
		if err != nil || !held.Decision.Allowed || held.Token != nil ||
			!errors.Is(failed(held.Decision), headgate.ErrUnanswered) {
			t.Errorf("reservation %+v, error %v", held, err)
		}
	}
	eventually(t, "the server is considered hung", func() bool { return log.count("no response to") == 1 })
}

// TestReservationUnrecorded tests calls that cannot be recorded, without a server and without a store: OnFailure does not apply.
func TestReservationUnrecorded(t *testing.T) {
	t.Parallel()
	noServer := newClient(t, client.Options{Addresses: []string{"127.0.0.1:1"}, OnFailure: headgate.FailDeny})
	limiter, err := headgate.New(unavailable{}, headgate.Rule{
		ID: "a", By: []string{"user"}, Limit: headgate.PerDay(1), OnStoreFailure: headgate.FailAllow,
	})
	if err != nil {
		t.Fatal(err)
	}
	var n node
	n.start(t, limiter)
	noStore := newClient(t, client.Options{Addresses: []string{n.address}, Timeout: patient})
	held, err := noStore.Reserve(t.Context(), by("u"), 0)
	if err != nil || held.Token == nil {
		t.Fatalf("reservation %+v, error %v", held, err)
	}
	for _, c := range []*client.Client{noServer, noStore} {
		for name, call := range map[string]func() (headgate.Decision, error){
			"refund": func() (headgate.Decision, error) { return c.Refund(t.Context(), by("u")) },
			"commit": func() (headgate.Decision, error) { return c.Commit(t.Context(), held.Token, by("u")) },
			"cancel": func() (headgate.Decision, error) { return c.Cancel(t.Context(), held.Token) },
		} {
			if d, err := call(); !errors.Is(err, headgate.ErrUnavailable) || !d.Allowed || d.Path != headgate.PathFailed {
				t.Errorf("%s: decision %+v, error %v", name, d, err)
			}
		}
	}
}

// TestReservationCounts reserves seven of ten units and commits three.
func TestReservationCounts(t *testing.T) {
	t.Parallel()
	var n node
	n.start(t, newLimiter(t, headgate.Rule{
		ID: "a", By: []string{"user"}, Limit: headgate.Quota(10, headgate.Month, nil),
	}))
	c := newClient(t, client.Options{Addresses: []string{n.address}, Timeout: patient})
	left := func() int64 {
		d, err := c.Peek(t.Context(), by("u"))
		if err != nil || failed(d) != nil {
			t.Fatalf("decision %+v, error %v", d, err)
		}
		return d.Limits[0].Remaining
	}
	held, err := c.Reserve(t.Context(), headgate.Request{Attributes: by("u").Attributes, Cost: 7}, 0)
	if err != nil || left() != 3 {
		t.Fatalf("reservation %+v, error %v", held, err)
	}
	d, err := c.Commit(t.Context(), held.Token, headgate.Request{Attributes: by("u").Attributes, Cost: 3})
	if err != nil || left() != 7 {
		t.Errorf("commit: %+v, error %v", d, err)
	}
}

// allRefund allows refunds by all callers.
func allRefund(context.Context, string, string) error { return nil }
