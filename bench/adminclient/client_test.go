// Package adminclient has no code of its own: its test generates a client from the admin API's OpenAPI document, as users would,
// and uses it.
package adminclient

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
	"github.com/oapi-codegen/oapi-codegen/v2/pkg/util"
	_ "github.com/oapi-codegen/runtime" // imported by the generated code
	_ "go.yaml.in/yaml/v3"              // likewise

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/testenv"
)

func TestGeneratedClient(t *testing.T) {
	t.Parallel()
	server, token := serve(t)
	tryout, err := filepath.Abs(filepath.Join("testdata", "tryout"))
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(tryout, "adminclient", "client.go"): generate(t)},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	write(t, file, string(overlay))
	cmd := exec.CommandContext(t.Context(), "go", "run", "-overlay", file, tryout, server, token)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "as it was sent") {
		t.Errorf("%v\n%s", err, out)
	}
}

// generate generates a client and returns its file.
func generate(t *testing.T) string {
	t.Helper()
	spec, err := util.LoadSwagger(filepath.Join("..", "..", "internal", "server", "adminapi", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	code, err := codegen.Generate(spec, codegen.Configuration{
		PackageName: "adminclient", Generate: codegen.GenerateOptions{Client: true, Models: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "client.go")
	write(t, file, code)
	return file
}

// serve starts a server with PostgreSQL and returns the address of its admin API and an editor's token.
func serve(t *testing.T) (address, token string) {
	t.Helper()
	postgres, redis, dir := testenv.StartPostgres(t), testenv.Start(t, testenv.Redis), t.TempDir()
	address, ops := testenv.FreeAddress(t), testenv.FreeAddress(t)
	config := filepath.Join(dir, "config.yaml")
	write(t, config, fmt.Sprintf("listen: {http: off, grpc: %q, ops: %q, admin: %q}\nredis: {address: \"redis://%s\"}\n"+
		"postgres: {address: %q}\nallow_no_rules: true\nadmin: {tokens_file: tokens}\n", testenv.FreeAddress(t), ops, address, redis.Addr(), postgres.URL()))
	token, line, err := adminapi.NewToken("ann", string(adminapi.Editor))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tokens"), line+"\n")
	headgate := testenv.BuildHeadgate(t)
	if out, err := exec.CommandContext(t.Context(), headgate, "migrate", "--config", config).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testenv.Run(t, exec.Command(headgate, "serve", "--config", config), address)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		res, err := http.Get("http://" + ops + "/readyz")
		if err == nil {
			_ = res.Body.Close()
		}
		if err == nil && res.StatusCode == http.StatusOK {
			return "http://" + address, token
		}
		if time.Now().After(end) {
			t.Fatalf("server not ready: %v", err)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
