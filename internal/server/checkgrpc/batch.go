package checkgrpc

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/server/check"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// description returns the generated service description, except that lists are not decoded at once.
func description() *grpc.ServiceDesc {
	d := checkv1.CheckService_ServiceDesc
	d.Methods = slices.Clone(d.Methods)
	for _, list := range []grpc.MethodDesc{
		check.Method(checkv1.CheckService_CheckBatch_FullMethodName, (*Service).checkAll),
		check.Method(checkv1.CheckService_Release_FullMethodName, (*Service).releaseAll),
		check.Method(checkv1.CheckService_Renew_FullMethodName, (*Service).renewAll),
	} {
		d.Methods[slices.IndexFunc(d.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == list.MethodName })] = list
	}
	return &d
}

// checkAll decides the requests of a batch independently, up to BatchWorkers at a time. It decides all of them even if the
// caller has hung up.
func (s *Service) checkAll(ctx context.Context, batch *list) (*checkv1.CheckBatchResponse, error) {
	if err := batch.validate("requests", check.MaxBatch, ", or use CheckStream"); err != nil {
		return nil, err
	}
	if !s.batches.TryAcquire(int64(batch.n)) { // Acquire fails if the caller has hung up
		if err := s.batches.Acquire(ctx, int64(batch.n)); err != nil {
			return nil, status.FromContextError(err).Err()
		}
	}
	defer s.batches.Release(int64(batch.n))
	own, leave := s.connections.join(ctx)
	defer leave()
	release, err := own.hold(len(batch.data))
	if err != nil {
		return nil, err
	}
	defer release()
	// The first worker needs no shared budget.
	borrowed := own.checks.take(int64(min(batch.n, s.maxInFlight, check.BatchWorkers) - 1))
	defer own.checks.release(borrowed)

	requests := slices.AppendSeq(make([][]byte, 0, batch.n), batch.items())
	results := make([]*checkv1.BatchAnswer, len(requests))
	check.Each(len(requests), 1+borrowed, func(i int) { results[i] = s.batchResult(ctx, requests[i]) })
	return &checkv1.CheckBatchResponse{Answers: results}, nil
}

// batchResult decides one request. A request that cannot be decoded does not affect the others.
func (s *Service) batchResult(ctx context.Context, data []byte) *checkv1.BatchAnswer {
	var request checkv1.CheckRequest
	var response *checkv1.CheckResponse
	err := readRequest(data, &request)
	if err != nil {
		err = unreadable(err)
	} else {
		response, err = s.Check(ctx, &request)
	}
	code, text := codeOf(err)
	return &checkv1.BatchAnswer{Response: response, Code: code, Message: text}
}

// codeOf returns the code and the message of an error for a result.
func codeOf(err error) (code int32, message string) {
	if err == nil {
		return int32(codes.OK), ""
	}
	st := status.Convert(err)
	return int32(st.Code()), st.Message()
}
