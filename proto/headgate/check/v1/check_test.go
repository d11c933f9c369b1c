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

const remedy = "run make proto, and commit the generated code"

// compiled returns check.proto, the source of the generated code.
func compiled(t *testing.T) protoreflect.FileDescriptor {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"../../.."}}}
	files, err := compiler.Compile(t.Context(), "headgate/check/v1/check.proto")
	if err != nil {
		t.Fatal(err)
	}
	return files[0]
}

func TestGeneratedMessages(t *testing.T) {
	t.Parallel()
	want := protodesc.ToFileDescriptorProto(compiled(t))
	got := protodesc.ToFileDescriptorProto(checkv1.File_headgate_check_v1_check_proto)
	if !proto.Equal(got, want) {
		t.Errorf("%s\ngenerated:\n%s\ncheck.proto:\n%s", remedy, prototext.Format(got), prototext.Format(want))
	}
}

func TestGeneratedMethods(t *testing.T) {
	t.Parallel()
	service := compiled(t).Services().ByName("CheckService")
	desc := checkv1.CheckService_ServiceDesc
	if desc.ServiceName != string(service.FullName()) {
		t.Errorf("the service is %s: %s", desc.ServiceName, remedy)
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
		stream, found := generated[string(method.Name())]
		if !found || stream.ClientStreams != method.IsStreamingClient() || stream.ServerStreams != method.IsStreamingServer() {
			t.Errorf("%s differs from the generated code: %s", method.Name(), remedy)
		}
	}
	if len(generated) != service.Methods().Len() {
		t.Errorf("%d generated methods: %s", len(generated), remedy)
	}
}

func TestGeneratedComments(t *testing.T) {
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
			t.Errorf("%q is not in the generated code: %s", line, remedy)
		}
	}
}
