package checkapi

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// CheckBatch decides several requests at once, each for itself, and all of them also if the caller has hung up.
func (s *Service) CheckBatch(
	ctx context.Context, batch *checkv1.CheckBatchRequest,
) (*checkv1.CheckBatchResponse, error) {
	requests := batch.GetRequests()
	if len(requests) > MaxBatch {
		return nil, status.Errorf(codes.InvalidArgument,
			"there are %d requests: send at most %d at a time, or use CheckStream", len(requests), MaxBatch)
	}
	answers := make([]*checkv1.BatchAnswer, len(requests))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(len(requests), s.options.MaxInFlight) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(requests) {
					return
				}
				response, err := s.Check(ctx, requests[i])
				code, text := codeOf(err)
				answers[i] = &checkv1.BatchAnswer{Response: response, Code: code, Message: text}
			}
		})
	}
	workers.Wait()
	return &checkv1.CheckBatchResponse{Answers: answers}, nil
}

// codeOf is an error as it stands in a message.
func codeOf(err error) (code int32, message string) {
	if err == nil {
		return int32(codes.OK), ""
	}
	st := status.Convert(err)
	return int32(st.Code()), st.Message()
}
