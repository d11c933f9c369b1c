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

// reply is a server's response to a request, and the times before and after it.
type reply struct {
	*rlsv3.RateLimitResponse // nil if the request is invalid
	before, after            time.Time
}

// margin is the time before the end of a second in which no call starts, so that few calls cross it.
const margin = 15 * time.Millisecond

func (w *world) call(server rlsv3.RateLimitServiceClient, r *rlsv3.RateLimitRequest) reply {
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

// inconclusive reports whether a second ended during the call, or Redis was late, so that the decision is not exact.
func (r reply) inconclusive() bool {
	path := r.GetDynamicMetadata().GetFields()["path"].GetStringValue()
	return r.before.Unix() != r.after.Unix() || path == "local" || path == "failed"
}

// outcome returns the part that is compared. precision is that of the server's clock.
func (r reply) outcome(precision time.Duration) outcome {
	if r.RateLimitResponse == nil {
		return outcome{failed: true}
	}
	a := outcome{over: r.GetOverallCode() != rlsv3.RateLimitResponse_OK}
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
			end := r.before.Truncate(precision).Add(d - tick).Truncate(time.Second).Add(time.Second) // the next second
			if got.resetsAt = end.Unix(); end.After(r.after.Add(d + tick)) {
				got.resetsAt = -1 // not at the end of a second
			}
		}
		a.statuses = append(a.statuses, got)
	}
	return a
}

// descriptor returns a descriptor of alternating keys and values.
func descriptor(pairs ...string) *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{}
	for pair := range slices.Chunk(pairs, 2) {
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: pair[0], Value: pair[1]})
	}
	return d
}
