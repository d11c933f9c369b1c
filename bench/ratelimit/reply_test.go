package ratelimit

import (
	"fmt"
	"slices"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// reply is what a server says to a request between two times.
type reply struct {
	*rlsv3.RateLimitResponse // nil if the request is none that can be answered
	before, after            time.Time
}

// margin is how far a second's end is kept off, so that few calls cross it.
const margin = 15 * time.Millisecond

func (w *world) ask(server rlsv3.RateLimitServiceClient, r *rlsv3.RateLimitRequest) reply {
	w.t.Helper()
	if end := time.Now().Truncate(time.Second).Add(time.Second); time.Until(end) < margin {
		time.Sleep(time.Until(end))
	}
	before := time.Now()
	response, err := server.ShouldRateLimit(w.t.Context(), r)
	if err != nil && grpcstatus.Code(err) != codes.InvalidArgument {
		w.t.Fatalf("%v: %v", r, err)
	}
	return reply{response, before, time.Now()}
}

// spoilt is whether a second ended during the call, or Redis was late, so that the decision is not exact.
func (r reply) spoilt() bool {
	path := r.GetDynamicMetadata().GetFields()["path"].GetStringValue()
	return r.before.Unix() != r.after.Unix() || path == "local" || path == "failed"
}

// answer is what is compared. The server's clock has a precision.
func (r reply) answer(precision time.Duration) answer {
	if r.RateLimitResponse == nil {
		return answer{failed: true}
	}
	a := answer{over: r.GetOverallCode() != rlsv3.RateLimitResponse_OK}
	for _, s := range r.GetStatuses() {
		got := status{over: s.GetCode() != rlsv3.RateLimitResponse_OK, left: int64(s.GetLimitRemaining())}
		if l := s.GetCurrentLimit(); l != nil {
			got.requests, got.unit = int64(l.GetRequestsPerUnit()), l.GetUnit().String()
			if times := l.GetUnitMultiplier().GetValue(); times > 1 {
				got.unit = fmt.Sprint(times, got.unit)
			}
		}
		if d := s.GetDurationUntilReset().AsDuration(); d > 0 {
			const tick = time.Millisecond
			end := r.before.Truncate(precision).Add(d - tick).Truncate(time.Second).Add(time.Second) // the next one
			if got.resetsAt = end.Unix(); end.After(r.after.Add(d + tick)) {
				got.resetsAt = -1 // it is in the middle of a second
			}
		}
		a.statuses = append(a.statuses, got)
	}
	return a
}

// descriptor has keys and values in turn.
func descriptor(pairs ...string) *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{}
	for pair := range slices.Chunk(pairs, 2) {
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: pair[0], Value: pair[1]})
	}
	return d
}
