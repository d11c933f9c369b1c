package grpclimit

import (
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
)

// hold is what a call has in use of concurrency limits, until its handler has returned.
type hold struct {
	decision atomic.Pointer[headgate.Decision] // nil if there are no units, and ended after the handler has returned
}

var ended = new(headgate.Decision)

// add adds the units of a decision. A goroutine of the handler may receive the message that is decided after the handler has returned.
func (h *hold) add(d headgate.Decision) {
	if !h.decision.CompareAndSwap(nil, &d) {
		d.Done(headgate.Outcome{Cancelled: true})
	}
}

// end releases the units. err is the error of the call.
func (h *hold) end(err error) {
	if d := h.decision.Swap(ended); d != nil {
		code := codeOf(err)
		d.Done(headgate.Outcome{Status: httpStatus(code), Cancelled: code == codes.Canceled})
	}
}

// codeOf returns the code with which a server ends a call whose handler returns err.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// errPanic is the error of a call whose handler panics. The panic is not recovered.
var errPanic = status.Error(codes.Internal, "panic")

// httpStatuses has the HTTP status of each code, as gRPC gateways map them.
var httpStatuses = [...]int{
	codes.OK:                 http.StatusOK,
	codes.Canceled:           499, // client closed request
	codes.Unknown:            http.StatusInternalServerError,
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.NotFound:           http.StatusNotFound,
	codes.AlreadyExists:      http.StatusConflict,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.Aborted:            http.StatusConflict,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Internal:           http.StatusInternalServerError,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.DataLoss:           http.StatusInternalServerError,
	codes.Unauthenticated:    http.StatusUnauthorized,
}

func httpStatus(code codes.Code) int {
	if int(code) < len(httpStatuses) {
		return httpStatuses[code]
	}
	return http.StatusInternalServerError // a code that is not defined
}
