package checkv1_test

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"

	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const again = "run make proto, and check in what it generates"

// compiled is check.proto, of which all the rest here is generated.
func compiled(t *testing.T) protoreflect.FileDescriptor {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"../../.."}}}
	files, err := compiler.Compile(t.Context(), "headgate/check/v1/check.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}

func TestMessagesAreThoseOfTheProto(t *testing.T) {
	t.Parallel()
	want := protodesc.ToFileDescriptorProto(compiled(t))
	got := protodesc.ToFileDescriptorProto(checkv1.File_headgate_check_v1_check_proto)
	if !proto.Equal(got, want) {
		t.Errorf("%s\ngenerated:\n%s\ncheck.proto:\n%s", again, prototext.Format(got), prototext.Format(want))
	}
}

func TestMethodsAreThoseOfTheProto(t *testing.T) {
	t.Parallel()
	service := compiled(t).Services().ByName("CheckService")
	desc := checkv1.CheckService_ServiceDesc
	if desc.ServiceName != string(service.FullName()) {
		t.Errorf("the service is %s: %s", desc.ServiceName, again)
	}
	generated := map[string]grpc.StreamDesc{}
	for _, method := range desc.Methods {
		generated[method.MethodName] = grpc.StreamDesc{}
	}
	for _, stream := range desc.Streams {
		generated[stream.StreamName] = stream
	}
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		is, there := generated[string(method.Name())]
		if !there || is.ClientStreams != method.IsStreamingClient() || is.ServerStreams != method.IsStreamingServer() {
			t.Errorf("%s is not as it is generated: %s", method.Name(), again)
		}
	}
	if len(generated) != service.Methods().Len() {
		t.Errorf("%d methods are generated: %s", len(generated), again)
	}
}

func TestCommentsAreThoseOfTheProto(t *testing.T) {
	t.Parallel()
	var generated strings.Builder
	for _, name := range []string{"check.pb.go", "check_grpc.pb.go"} {
		code, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		generated.Write(code)
	}
	source, err := os.Open("check.proto")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	for lines := bufio.NewScanner(source); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "//") && !strings.Contains(generated.String(), line) {
			t.Errorf("%q is not in the generated code: %s", line, again)
		}
	}
}
