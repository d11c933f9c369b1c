package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestHTTPStatus(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, http.StatusOK},
		{status.Error(codes.NotFound, ""), http.StatusNotFound},
		{fmt.Errorf("wrapped: %w", status.Error(codes.Unavailable, "")), http.StatusServiceUnavailable},
		{status.Error(codes.Unauthenticated, ""), http.StatusUnauthorized},
		{status.Error(99, ""), http.StatusInternalServerError},
		{errors.New("other"), http.StatusInternalServerError},
		{context.Canceled, 499},
		{context.DeadlineExceeded, http.StatusGatewayTimeout},
		{errPanic, http.StatusInternalServerError},
	} {
		if got := httpStatus(codeOf(test.err)); got != test.want {
			t.Errorf("%v: %d, want %d", test.err, got, test.want)
		}
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if httpStatus(code) == 0 {
			t.Errorf("%s has no status", code)
		}
	}
}
