package checkgrpc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// exports allows 3 requests of a tenant in flight. It is strict, so that released units are not kept.
var exports = headgate.Rule{ID: "exports", By: []string{"tenant"}, Strict: true, Limit: headgate.Concurrent(3)}

func acme(begin bool) *checkv1.CheckRequest {
	return &checkv1.CheckRequest{Attributes: map[string]string{"tenant": "acme"}, Begin: begin}
}

// expectInFlight checks how many requests of acme are in flight, once releases are recorded.
func expectInFlight(t *testing.T, l *headgate.Limiter, when string, want int64) {
	t.Helper()
	used := int64(-1)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		d, err := l.Peek(context.Background(), headgate.Request{Attributes: headgate.Attributes{"tenant": "acme"}})
		if err != nil {
			t.Fatal(err)
		}
		if used = 3 - d.Limits[0].Remaining; used == want {
			return
		}
	}
	t.Errorf("%s: %d in flight, want %d", when, used, want)
}

// begun returns the slots of a response, which must be allowed.
func begun(t *testing.T, response *checkv1.CheckResponse) []byte {
	t.Helper()
	if !response.GetAllowed() || len(response.GetSlots()) != 16 || response.GetLeaseUs() != (10*time.Second).Microseconds() {
		t.Fatalf("not begun: %v", response)
	}
	return response.GetSlots()
}

func TestBegin(t *testing.T) {
	t.Parallel()
	l := limiter(t, exports)
	client := serve(t, checkgrpc.New(l, checkgrpc.Options{}).Register)
	ctx := t.Context()
	decide := func(begin bool) *checkv1.CheckResponse {
		t.Helper()
		response, err := client.Check(ctx, acme(begin))
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	if r := decide(false); !r.GetAllowed() || r.GetSlots() != nil || r.GetLeaseUs() != 0 || !slices.Equal(r.GetSkipped(), []string{"exports"}) {
		t.Errorf("without begin: %v", r)
	}
	first, second, third := begun(t, decide(true)), begun(t, decide(true)), begun(t, decide(true))
	if r := decide(true); r.GetAllowed() || r.GetSlots() != nil || r.GetLeaseUs() != 0 || r.GetSkipped() != nil || r.GetRetryAfterUs() < 1_000_000 {
		t.Errorf("the fourth: %v", r)
	}
	expectInFlight(t, l, "three", 3)
	unknown := make([]byte, 16)
	renewed, err := client.Renew(ctx, &checkv1.RenewRequest{Slots: [][]byte{first, unknown, second, nil}})
	if err != nil || !slices.Equal(renewed.GetFound(), []bool{true, false, true, false}) {
		t.Errorf("renewed: %v, %v", renewed, err)
	}
	released, err := client.Release(ctx, &checkv1.ReleaseRequest{Releases: []*checkv1.SlotRelease{
		{Slots: first, DurationUs: 1_000, Status: 200}, {Slots: unknown}, {Slots: first}, {Slots: third, DurationUs: -1, Cancelled: true}, {},
	}})
	if err != nil || !slices.Equal(released.GetFound(), []bool{true, false, false, true, false}) {
		t.Errorf("released: %v, %v", released, err)
	}
	expectInFlight(t, l, "after two releases", 1)
	if renewed, err := client.Renew(ctx, &checkv1.RenewRequest{Slots: [][]byte{first, second}}); err != nil || !slices.Equal(renewed.GetFound(), []bool{false, true}) {
		t.Errorf("renewed: %v, %v", renewed, err)
	}
}

// TestBeginBatch checks that each request of a batch begins for itself.
func TestBeginBatch(t *testing.T) {
	t.Parallel()
	l := limiter(t, exports)
	client := serve(t, checkgrpc.New(l, checkgrpc.Options{}).Register)
	batch := &checkv1.CheckBatchRequest{Requests: []*checkv1.CheckRequest{acme(false), acme(true), acme(true), acme(true), acme(true), acme(false)}}
	got, err := client.CheckBatch(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	release := &checkv1.ReleaseRequest{}
	for i, result := range got.GetAnswers() {
		r := result.GetResponse()
		if begins := i > 0 && i < 5; begins == (len(r.GetSkipped()) > 0) || !begins && !r.GetAllowed() || (len(r.GetSlots()) > 0) != (begins && r.GetAllowed()) {
			t.Errorf("%d: %v", i, r)
		}
		if r.GetSlots() != nil {
			release.Releases = append(release.Releases, &checkv1.SlotRelease{Slots: r.GetSlots()})
		}
	}
	if len(release.GetReleases()) != 3 {
		t.Errorf("%d of 4 begun, want 3", len(release.GetReleases()))
	}
	expectInFlight(t, l, "after the batch", 3)
	if released, err := client.Release(t.Context(), release); err != nil || slices.Contains(released.GetFound(), false) {
		t.Errorf("released: %v, %v", released, err)
	}
	expectInFlight(t, l, "at the end", 0)
}

func TestBeginErrors(t *testing.T) {
	t.Parallel()
	l := limiter(t, exports)
	client := serve(t, checkgrpc.New(l, checkgrpc.Options{Log: quiet}).Register)
	ctx := t.Context()
	expect := func(what string, err error, code codes.Code, text string) {
		t.Helper()
		if status.Code(err) != code || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := client.Peek(ctx, acme(true))
	expect("peek", err, codes.InvalidArgument, "begin: only for Check")
	_, err = client.Reserve(ctx, &checkv1.ReserveRequest{Request: acme(true)})
	expect("reserve", err, codes.InvalidArgument, "begin: only for Check")
	unknown := acme(true)
	unknown.Rule = "none"
	_, err = client.Check(ctx, unknown)
	expect("unknown rule", err, codes.NotFound, `rule "none"`)
	invalid := acme(true)
	invalid.Cost = -1
	_, err = client.Check(ctx, invalid)
	expect("invalid cost", err, codes.InvalidArgument, "cost -1")
	_, err = client.Renew(ctx, &checkv1.RenewRequest{Slots: make([][]byte, 1_001)})
	expect("renew too many", err, codes.InvalidArgument, "1001 slots: send at most 1000")
	_, err = client.Release(ctx, &checkv1.ReleaseRequest{Releases: make([]*checkv1.SlotRelease, 1_001)})
	expect("release too many", err, codes.InvalidArgument, "1001 releases: send at most 1000")
	expectInFlight(t, l, "after errors", 0)
}

// fullEngine fails as a full table of slots does.
type fullEngine struct{ *headgate.Limiter }

func (fullEngine) Begin(context.Context, headgate.Request) (headgate.Decision, error) {
	return headgate.Decision{}, check.ErrTooManySlots
}

func TestTooManySlots(t *testing.T) {
	t.Parallel()
	client := serve(t, checkgrpc.New(fullEngine{limiter(t)}, checkgrpc.Options{Log: quiet}).Register)
	_, err := client.Check(t.Context(), acme(true))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "release those that have ended") {
		t.Error(err)
	}
}

// endsEngine begins all requests and reports how they end.
type endsEngine struct {
	*headgate.Limiter
	ends chan headgate.Outcome
}

func (e *endsEngine) Begin(context.Context, headgate.Request) (headgate.Decision, error) {
	d := headgate.Decision{Allowed: true, Limits: []headgate.LimitDecision{{Limit: headgate.Concurrent(3)}}}
	d.OnDone(func(o headgate.Outcome) { e.ends <- o })
	return d, nil
}

// TestReleaseOutcome checks that the engine gets the outcome of a request.
func TestReleaseOutcome(t *testing.T) {
	t.Parallel()
	e := &endsEngine{limiter(t), make(chan headgate.Outcome, 2)}
	client := serve(t, checkgrpc.New(e, checkgrpc.Options{}).Register)
	unary, err := client.Check(t.Context(), acme(true))
	if err != nil {
		t.Fatal(err)
	}
	end := func(slots []byte) []*checkv1.SlotRelease {
		return []*checkv1.SlotRelease{{Slots: slots, DurationUs: 1_250_000, Status: 404, Cancelled: true}}
	}
	if _, err := client.Release(t.Context(), &checkv1.ReleaseRequest{Releases: end(begun(t, unary))}); err != nil {
		t.Error(err)
	}
	stream := open(t, client)
	send(t, stream, &checkv1.CheckStreamRequest{Releases: end(beginOn(t, stream, 1)[0])})
	for range 2 {
		if o := <-e.ends; o != (headgate.Outcome{Duration: 1250 * time.Millisecond, Status: 404, Cancelled: true}) {
			t.Errorf("%+v", o)
		}
	}
}

// beginOn begins n requests on a stream and returns their slots.
func beginOn(t *testing.T, stream clientSide, n int) (slots [][]byte) {
	t.Helper()
	message := &checkv1.CheckStreamRequest{}
	for id := range n {
		message.Checks = append(message.Checks, &checkv1.StreamCheck{Id: uint64(id), Request: acme(true)})
	}
	send(t, stream, message)
	for len(slots) < n {
		for _, result := range receive(t, stream).GetAnswers() {
			slots = append(slots, begun(t, result.GetResponse()))
		}
	}
	return slots
}

// TestBeginOnStream checks that slots of a stream are released on it, and nowhere else, and that others may begin afterwards.
func TestBeginOnStream(t *testing.T) {
	t.Parallel()
	l := limiter(t, exports)
	client := serve(t, checkgrpc.New(l, checkgrpc.Options{}).Register)
	stream, other := open(t, client), open(t, client)
	slots := beginOn(t, stream, 3)
	if r, err := client.Check(t.Context(), acme(true)); err != nil || r.GetAllowed() {
		t.Errorf("the fourth: %v, %v", r, err)
	}
	if found, err := client.Release(t.Context(), &checkv1.ReleaseRequest{Releases: []*checkv1.SlotRelease{{Slots: slots[0]}}}); err != nil || found.GetFound()[0] {
		t.Errorf("released outside of the stream: %v, %v", found, err)
	}
	send(t, other, &checkv1.CheckStreamRequest{Releases: []*checkv1.SlotRelease{{Slots: slots[0]}}})
	send(t, other, checks(1, 1))
	receive(t, other)
	expectInFlight(t, l, "after releases elsewhere", 3)
	send(t, stream, &checkv1.CheckStreamRequest{Releases: []*checkv1.SlotRelease{{Slots: slots[0]}, {Slots: slots[0]}, {Slots: slots[2], Status: 200}}})
	expectInFlight(t, l, "after two releases", 1)
	// A message may have both.
	send(t, stream, &checkv1.CheckStreamRequest{
		Releases: []*checkv1.SlotRelease{{Slots: slots[1]}}, Checks: []*checkv1.StreamCheck{{Id: 7, Request: acme(true)}},
	})
	if results := receive(t, stream).GetAnswers(); len(results) != 1 || results[0].GetId() != 7 {
		t.Errorf("results: %v", results)
	}
	expectInFlight(t, l, "at the end", 1)
}

// TestStreamEndReleases checks that a stream releases its slots however it ends.
func TestStreamEndReleases(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, stream clientSide, hangUp func()){
		"closed": func(t *testing.T, stream clientSide, _ func()) {
			t.Helper()
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		},
		"hung up": func(_ *testing.T, _ clientSide, hangUp func()) { hangUp() },
		"hung up with checks in flight": func(t *testing.T, stream clientSide, hangUp func()) {
			t.Helper()
			message := &checkv1.CheckStreamRequest{}
			for id := range 1_000 {
				message.Checks = append(message.Checks, &checkv1.StreamCheck{Id: uint64(id), Request: acme(true)})
			}
			send(t, stream, message)
			hangUp()
		},
		"too many checks": func(t *testing.T, stream clientSide, _ func()) {
			t.Helper()
			send(t, stream, &checkv1.CheckStreamRequest{Checks: make([]*checkv1.StreamCheck, 16_385)})
			if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := limiter(t, exports)
			client := serve(t, checkgrpc.New(l, checkgrpc.Options{Log: quiet}).Register)
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			stream, err := client.CheckStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			beginOn(t, stream, 2)
			expectInFlight(t, l, "two", 2)
			end(t, stream, hangUp)
			expectInFlight(t, l, "after the stream", 0)
		})
	}
}
