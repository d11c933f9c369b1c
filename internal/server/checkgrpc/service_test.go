package checkgrpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

var _ check.Engine = (*headgate.Limiter)(nil)

var quiet = slog.New(slog.DiscardHandler)

// engineCall is a call of the engine.
type engineCall struct {
	method string
	used   headgate.Request // of Extend
	req    headgate.Request
	token  string
	hold   time.Duration
}

// scripted returns a fixed decision for every call, and records the last call.
type scripted struct {
	*headgate.Limiter
	decision headgate.Decision
	err      error
	last     engineCall
}

func (s *scripted) record(a engineCall) (headgate.Decision, error) {
	s.last = a
	return s.decision, s.err
}

func (s *scripted) Check(_ context.Context, req headgate.Request) (headgate.Decision, error) {
	return s.record(engineCall{method: "Check", req: req})
}

func (s *scripted) Peek(_ context.Context, req headgate.Request) (headgate.Decision, error) {
	return s.record(engineCall{method: "Peek", req: req})
}

func (s *scripted) Refund(_ context.Context, req headgate.Request) (headgate.Decision, error) {
	return s.record(engineCall{method: "Refund", req: req})
}

func (s *scripted) Commit(_ context.Context, token []byte, req headgate.Request) (headgate.Decision, error) {
	return s.record(engineCall{method: "Commit", req: req, token: string(token)})
}

func (s *scripted) Cancel(_ context.Context, token []byte) (headgate.Decision, error) {
	return s.record(engineCall{method: "Cancel", token: string(token)})
}

func (s *scripted) Reserve(
	_ context.Context, req headgate.Request, hold time.Duration,
) (headgate.Reservation, error) {
	d, err := s.record(engineCall{method: "Reserve", req: req, hold: hold})
	return headgate.Reservation{Decision: d, Token: []byte("token")}, err
}

func (s *scripted) Extend(
	_ context.Context, token []byte, used, expected headgate.Request, hold time.Duration,
) (headgate.Reservation, error) {
	d, err := s.record(engineCall{method: "Extend", used: used, req: expected, token: string(token), hold: hold})
	return headgate.Reservation{Decision: d, Token: []byte("token"), Covered: 7}, err
}

// methods lists the methods that return one decision.
var methods = []string{"Check", "Peek", "Refund", "Reserve", "Extend", "Commit", "Cancel"}

// call calls a method by its name.
func call(
	ctx context.Context, client checkv1.CheckServiceClient, method string, req *checkv1.CheckRequest,
) (response *checkv1.CheckResponse, err error) {
	switch method {
	case "Check":
		return client.Check(ctx, req)
	case "Peek":
		return client.Peek(ctx, req)
	case "Refund":
		return client.Refund(ctx, req)
	case "Reserve":
		r, err := client.Reserve(ctx, &checkv1.ReserveRequest{Request: req, HoldUs: 5_000_000})
		if err == nil && string(r.GetReservation()) != "token" {
			err = fmt.Errorf("the reservation is %q", r.GetReservation())
		}
		return r.GetDecision(), err
	case "Extend":
		r, err := client.Extend(ctx, &checkv1.ExtendRequest{
			Reservation: []byte("t"), Used: &checkv1.CheckRequest{Cost: 2}, Expected: req, HoldUs: 5_000_000,
		})
		if err == nil && (string(r.GetReservation()) != "token" || r.GetCovered() != 7) {
			err = fmt.Errorf("the reservation is %v", r)
		}
		return r.GetDecision(), err
	case "Commit":
		return client.Commit(ctx, &checkv1.CommitRequest{
			Reservation: []byte("t"), Cost: req.GetCost(), Attributes: req.GetAttributes(),
		})
	default:
		return client.Cancel(ctx, &checkv1.CancelRequest{Reservation: []byte("t")})
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	attributes := map[string]string{"user": "ann", "path": "/v1"}
	whole := headgate.Request{Attributes: attributes, Cost: 3, Rule: "search"}
	want := map[string]engineCall{
		"Check":   {req: whole},
		"Peek":    {req: whole},
		"Refund":  {req: whole},
		"Reserve": {req: whole, hold: 5 * time.Second},
		"Extend":  {used: headgate.Request{Cost: 2}, req: whole, token: "t", hold: 5 * time.Second},
		"Commit":  {req: headgate.Request{Attributes: attributes, Cost: 3}, token: "t"},
		"Cancel":  {token: "t"},
	}
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			decision := headgate.Decision{RetryAfter: time.Second, Path: headgate.PathStore}
			engine := &scripted{Limiter: limiter(t), decision: decision}
			client := serve(t, checkgrpc.New(engine, checkgrpc.Options{MayRefund: check.AllRefund}).Register)
			req := &checkv1.CheckRequest{Attributes: attributes, Cost: 3, Rule: "search"}
			response, err := call(t.Context(), client, method, req)
			if err != nil {
				t.Fatal(err)
			}
			if response.GetAllowed() || response.GetRetryAfterUs() != 1_000_000 || response.GetPath() != "store" {
				t.Errorf("response %v", response)
			}
			want := want[method]
			want.method = method
			if !reflect.DeepEqual(engine.last, want) {
				t.Errorf("engine called with %+v, want %+v", engine.last, want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		code codes.Code
		want string
	}{
		{
			fmt.Errorf("rules: %w", headgate.ErrUnknownRule), codes.NotFound,
			`rule "search" not found in version`,
		},
		// Package client depends on the prefix.
		{fmt.Errorf("too short: %w", headgate.ErrInvalidToken), codes.InvalidArgument, "reservation: too short"},
		{errors.New("out of order"), codes.Internal, "out of order"},
	} {
		engine := &scripted{Limiter: limiter(t), err: test.err}
		client := serve(t, checkgrpc.New(engine, checkgrpc.Options{MayRefund: check.AllRefund, Log: quiet}).Register)
		for _, method := range methods {
			_, err := call(t.Context(), client, method, &checkv1.CheckRequest{Rule: "search"})
			if status.Code(err) != test.code {
				t.Errorf("%s, %v: %v", method, test.err, err)
			}
		}
		_, err := client.Check(t.Context(), &checkv1.CheckRequest{Rule: "search"})
		if !strings.HasPrefix(status.Convert(err).Message(), test.want) {
			t.Errorf("%v: %v", test.err, err)
		}
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	engine := &scripted{Limiter: limiter(t)}
	client := serve(t, checkgrpc.New(engine, checkgrpc.Options{MayRefund: check.AllRefund}).Register)
	for _, method := range methods {
		if method == "Cancel" {
			continue // has only a token
		}
		_, err := call(t.Context(), client, method, &checkv1.CheckRequest{Cost: headgate.MaxCost + 1})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "must be 1 to 1000000000") {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, hold := range []int64{-1, 3_600_000_001, 1 << 62, -1 << 62} {
		_, err := client.Reserve(t.Context(), &checkv1.ReserveRequest{HoldUs: hold})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "must be 0s to 1h0m0s") {
			t.Errorf("hold of %d: %v", hold, err)
		}
	}
	if engine.last.method != "" {
		t.Errorf("the engine was called: %+v", engine.last)
	}
}

func TestRefundsNotAllowed(t *testing.T) {
	t.Parallel()
	engine := &scripted{Limiter: limiter(t)}
	_, err := serve(t, checkgrpc.New(engine, checkgrpc.Options{}).Register).Refund(t.Context(), &checkv1.CheckRequest{})
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "listen.allow_refunds") {
		t.Error(err)
	}
	if engine.last.method != "" {
		t.Errorf("the engine was called: %+v", engine.last)
	}
}

// TestMayRefund checks that MayRefund gets the authorization and the address of the caller, and is called before the refund.
func TestMayRefund(t *testing.T) {
	t.Parallel()
	engine := &scripted{Limiter: limiter(t)}
	client := serve(t, checkgrpc.New(engine, checkgrpc.Options{
		MayRefund: func(_ context.Context, authorization, peer string) error {
			if authorization == "Bearer right" && strings.HasPrefix(peer, "127.0.0.1:") {
				return nil
			}
			return fmt.Errorf("%q may not", authorization)
		},
	}).Register)
	for authorization, want := range map[string]codes.Code{
		"": codes.PermissionDenied, "Bearer wrong": codes.PermissionDenied, "Bearer right": codes.OK,
	} {
		engine.last.method = ""
		ctx := t.Context()
		if authorization != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
		}
		_, err := client.Refund(ctx, &checkv1.CheckRequest{})
		if status.Code(err) != want || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%q may not", authorization)) {
			t.Errorf("%q: %v", authorization, err)
		}
		if called := engine.last.method != ""; called != (want == codes.OK) {
			t.Errorf("%q: the engine was called: %v", authorization, called)
		}
	}
}

// TestLog checks that a failing engine is logged once, not once per check.
func TestLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	options := checkgrpc.Options{Log: slog.New(slog.NewTextHandler(&out, nil))}
	engine := &scripted{Limiter: limiter(t), err: errors.New("out of order")}
	service := checkgrpc.New(engine, options)
	for range 3 {
		if _, err := service.Check(t.Context(), &checkv1.CheckRequest{}); err == nil {
			t.Error("no error")
		}
	}
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "out of order") {
		t.Errorf("log: %s", text)
	}
}

// TestStoreFailed checks that an unavailable store is reported in the decision.
func TestStoreFailed(t *testing.T) {
	t.Parallel()
	for _, method := range methods {
		engine := &scripted{
			Limiter: limiter(t), err: headgate.ErrUnanswered,
			decision: headgate.Decision{Allowed: true, Path: headgate.PathFailed},
		}
		client := serve(t, checkgrpc.New(engine, checkgrpc.Options{MayRefund: check.AllRefund}).Register)
		response, err := call(t.Context(), client, method, &checkv1.CheckRequest{})
		if err != nil || !response.GetAllowed() || response.GetPath() != "failed" {
			t.Errorf("%s: %v, %v", method, response, err)
		}
	}
}

// TestLimiter calls all methods with a real limiter.
func TestLimiter(t *testing.T) {
	t.Parallel()
	limited := headgate.Rule{ID: "calls", By: []string{"user"}, Limit: headgate.PerDay(100)}
	client := serve(t, checkgrpc.New(limiter(t, limited), checkgrpc.Options{MayRefund: check.AllRefund}).Register)
	ctx := t.Context()
	of := func(cost int64) *checkv1.CheckRequest {
		return &checkv1.CheckRequest{Attributes: map[string]string{"user": "ann"}, Cost: cost}
	}
	expect := func(when string, r *checkv1.CheckResponse, err error, allowed bool, granted, remaining int64) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		limit := r.GetLimits()[0]
		if r.GetAllowed() != allowed || limit.GetGranted() != granted || limit.GetRemaining() != remaining ||
			limit.GetRule() != "calls" || r.GetTimeUs() == 0 {
			t.Errorf("%s: %v", when, r)
		}
	}
	r, err := client.Check(ctx, of(30))
	expect("check", r, err, true, 30, 70)
	r, err = client.Check(ctx, of(71))
	expect("too much", r, err, false, 0, 70)
	if wait := r.GetRetryAfterUs(); wait <= 0 || wait != r.GetLimits()[0].GetRetryAfterUs() {
		t.Errorf("retry after %d", wait)
	}
	r, err = client.Peek(ctx, of(1))
	expect("peek", r, err, true, 0, 70)
	held, err := client.Reserve(ctx, &checkv1.ReserveRequest{Request: of(50)})
	expect("reserve", held.GetDecision(), err, true, 50, 20)
	r, err = client.Commit(ctx, &checkv1.CommitRequest{Reservation: held.GetReservation(), Cost: 10})
	expect("commit", r, err, true, 10, 60)
	held, err = client.Reserve(ctx, &checkv1.ReserveRequest{Request: of(30)})
	expect("reserve to extend", held.GetDecision(), err, true, 30, 30)
	held, err = client.Extend(ctx, &checkv1.ExtendRequest{Reservation: held.GetReservation(), Used: of(30), Expected: of(100)})
	expect("extend", held.GetDecision(), err, true, 30, 0)
	if held.GetCovered() != 60 {
		t.Errorf("%d are covered", held.GetCovered())
	}
	r, err = client.Cancel(ctx, &checkv1.CancelRequest{Reservation: held.GetReservation()})
	expect("cancel the extension", r, err, true, 0, 30)
	r, err = client.Refund(ctx, of(30))
	expect("refund what was used", r, err, true, 30, 60)
	held, err = client.Reserve(ctx, &checkv1.ReserveRequest{Request: of(50), HoldUs: 1_000_000})
	expect("reserve again", held.GetDecision(), err, true, 50, 10)
	r, err = client.Cancel(ctx, &checkv1.CancelRequest{Reservation: held.GetReservation()})
	expect("cancel", r, err, true, 0, 60)
	r, err = client.Refund(ctx, of(15))
	expect("refund", r, err, true, 15, 75)

	req := of(1)
	req.Rule = "others"
	if _, err = client.Check(ctx, req); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown rule: %v", err)
	}
	if _, err = client.Cancel(ctx, &checkv1.CancelRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no reservation: %v", err)
	}
}
