// Package prototest checks in tests that the Go code generated from a .proto file is up to date. It knows what the generators write, but
// no message and no service.
package prototest

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const remedy = "run make proto, and commit the generated code"

// Current fails the test of a generated package if its messages, its service or its comments differ from the .proto file in the
// package's directory.
func Current(t *testing.T, generated protoreflect.FileDescriptor, service *grpc.ServiceDesc) {
	t.Helper()
	// The paths of .proto files are relative to proto, and the test runs in the directory of one of them.
	root := strings.Repeat("../", strings.Count(generated.Path(), "/"))
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{root}}}
	files, err := compiler.Compile(t.Context(), generated.Path())
	if err != nil {
		t.Fatal(err)
	}
	got, want := protodesc.ToFileDescriptorProto(generated), protodesc.ToFileDescriptorProto(files[0])
	if !proto.Equal(got, want) {
		t.Errorf("%s\ngenerated:\n%s\n%s:\n%s", remedy, prototext.Format(got), generated.Path(), prototext.Format(want))
	}
	checkMethods(t, files[0], service)
	checkComments(t, path.Base(generated.Path()))
}

// checkMethods compares the methods of the source's only service with the generated ones.
func checkMethods(t *testing.T, source protoreflect.FileDescriptor, desc *grpc.ServiceDesc) {
	t.Helper()
	service := source.Services().Get(0)
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

// checkComments checks that the generated code has the comments of the source.
func checkComments(t *testing.T, source string) {
	t.Helper()
	var generated strings.Builder
	files := os.DirFS(".")
	for _, suffix := range []string{".pb.go", "_grpc.pb.go"} {
		code, err := fs.ReadFile(files, strings.TrimSuffix(source, ".proto")+suffix)
		if err != nil {
			t.Fatal(err)
		}
		generated.Write(code)
	}
	text, err := fs.ReadFile(files, source)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "//") && !strings.Contains(generated.String(), line) {
			t.Errorf("%q is not in the generated code: %s", line, remedy)
		}
	}
}
