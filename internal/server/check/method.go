package check

import (
	"context"
	"path"

	"google.golang.org/grpc"
)

// Method returns a method of a gRPC service S whose request, an R, is decoded by the server's codec instead of generated code.
func Method[S, R, A any](fullMethod string, handle func(S, context.Context, *R) (A, error)) grpc.MethodDesc {
	handler := func(service any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		req := new(R)
		if err := read(req); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, req any) (any, error) {
			s, _ := service.(S)
			r, _ := req.(*R)
			return handle(s, ctx, r)
		}
		if intercept == nil {
			return call(ctx, req)
		}
		return intercept(ctx, req, &grpc.UnaryServerInfo{Server: service, FullMethod: fullMethod}, call)
	}
	return grpc.MethodDesc{MethodName: path.Base(fullMethod), Handler: handler}
}
