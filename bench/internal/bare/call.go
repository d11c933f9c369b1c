package bare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/internal/testenv"
)

// Dial connects to a server.
func Dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	testenv.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Invoke calls a method with an encoded request and checks only the first bytes of the response: callers share the cores
// with the servers and must use little CPU.
func Invoke(ctx context.Context, conn *grpc.ClientConn, method string, request, begins []byte) (response []byte, err error) {
	err = conn.Invoke(ctx, method, request, &response, grpc.ForceCodec(codec{}))
	if err == nil && !bytes.HasPrefix(response, begins) {
		err = fmt.Errorf("unexpected response %q", response)
	}
	return response, err
}

// Descriptor returns a descriptor with one entry, for a request by Envoy's protocol.
func Descriptor(key, value string) *descriptorv3.RateLimitDescriptor {
	return &descriptorv3.RateLimitDescriptor{Entries: []*descriptorv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

// codec passes encoded messages through.
type codec struct{}

var errNotBytes = errors.New("not bytes")

func (codec) Name() string { return "proto" }

func (codec) Marshal(message any) ([]byte, error) {
	data, ok := message.([]byte)
	if !ok {
		return nil, errNotBytes
	}
	return data, nil
}

func (codec) Unmarshal(data []byte, message any) error {
	into, ok := message.(*[]byte)
	if !ok {
		return errNotBytes
	}
	*into = data
	return nil
}

// Stream opens one stream for all callers. The returned function sends a key and waits for the caller's own response.
func Stream(t testing.TB, conn *grpc.ClientConn, callers int) func(caller int, key string) error {
	t.Helper()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
	testenv.NoError(t, err)
	out := make(chan string, callers)
	responded := make([]chan struct{}, callers)
	for i := range responded {
		responded[i] = make(chan struct{}, 1)
	}
	go func() {
		for text := range out {
			if stream.SendMsg(wrapperspb.String(text)) != nil {
				return
			}
		}
	}()
	go func() {
		for {
			in := &wrapperspb.Int64Value{}
			if stream.RecvMsg(in) != nil {
				return
			}
			responded[in.GetValue()] <- struct{}{}
		}
	}()
	return func(caller int, key string) error {
		out <- fmt.Sprintf("%08d", caller) + key
		<-responded[caller]
		return nil
	}
}
