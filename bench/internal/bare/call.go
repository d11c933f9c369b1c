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

// Invoke calls a method with a request that is written already, and only looks at how the answer begins: callers have the
// same cores as the servers, and are not what is measured.
func Invoke(ctx context.Context, conn *grpc.ClientConn, method string, request, begins []byte) (answer []byte, err error) {
	err = conn.Invoke(ctx, method, request, &answer, grpc.ForceCodec(codec{}))
	if err == nil && !bytes.HasPrefix(answer, begins) {
		err = fmt.Errorf("the answer is %q", answer)
	}
	return answer, err
}

// Descriptor is that of one entry in a request by Envoy's protocol.
func Descriptor(key, value string) *descriptorv3.RateLimitDescriptor {
	return &descriptorv3.RateLimitDescriptor{Entries: []*descriptorv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

// codec is for messages that are written already.
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

// Stream has all callers share one stream: each waits for its own answer.
func Stream(t testing.TB, conn *grpc.ClientConn, callers int) func(caller int, key string) error {
	t.Helper()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
	testenv.NoError(t, err)
	out := make(chan string, callers)
	answered := make([]chan struct{}, callers)
	for i := range answered {
		answered[i] = make(chan struct{}, 1)
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
			answered[in.GetValue()] <- struct{}{}
		}
	}()
	return func(caller int, key string) error {
		out <- fmt.Sprintf("%08d", caller) + key
		<-answered[caller]
		return nil
	}
}
