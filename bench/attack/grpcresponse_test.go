package attack

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// TestGRPCResponseMatchesJSON sends the same requests in JSON and in gRPC. The top level of both responses must suffice to inform a
// client about its limits.
func TestGRPCResponseMatchesJSON(t *testing.T) {
	t.Parallel()
	node := startServer(t, fmt.Sprintf("redis: {address: %q}\nheaders: [both, older-draft]\n", "redis://"+startRedis(t).Addr()),
		"rules: [{id: hour, by: [user], limit: 3/hour, strict: true}, {id: minute, by: [user], limit: {rate: 100/minute, algorithm: sliding_window}}]\n")
	conn, err := grpc.NewClient(node.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	service := checkv1.NewCheckServiceClient(conn)
	peek := func(user string, headers bool) *checkv1.CheckResponse {
		response, err := service.Peek(t.Context(), &checkv1.CheckRequest{Attributes: map[string]string{"user": user}, WithHeaders: headers})
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	for used := range 4 {
		var inJSON struct {
			Remaining  int64
			Reset      time.Time
			RetryAfter float64 `json:"retry_after"`
			Headers    map[string]string
		}
		body, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/peek", `{"attributes": {"user": "ada"}}`)
		if err == nil {
			err = json.Unmarshal(body, &inJSON)
		}
		if err != nil {
			t.Fatal(err)
		}
		response := peek("ada", true)
		t.Logf("%d used: remaining %d, reset %d, headers %v", used, response.GetRemaining(), response.GetResetUs(), response.GetHeaders())
		if response.GetRemaining() != inJSON.Remaining {
			t.Errorf("%d used: remaining is %v, in JSON %d", used, response.GetRemaining(), inJSON.Remaining)
		}
		// An unused counter is reset at the time of the request, which is later for the second request.
		if got := time.UnixMicro(response.GetResetUs()); got.Sub(inJSON.Reset).Abs() > 10*time.Second {
			t.Errorf("%d used: reset is %s, in JSON %s", used, got, inJSON.Reset)
		}
		if got := slices.Sorted(maps.Keys(response.GetHeaders())); !slices.Equal(got, slices.Sorted(maps.Keys(inJSON.Headers))) || len(got) < 8 {
			t.Errorf("%d used: headers are %v, in JSON %v", used, got, inJSON.Headers)
		}
		for _, name := range []string{"RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining"} {
			if response.GetHeaders()[name] != inJSON.Headers[name] {
				t.Errorf("%d used: %s is %q, in JSON %q", used, name, response.GetHeaders()[name], inJSON.Headers[name])
			}
		}
		if retryAfter, err := strconv.Atoi(response.GetHeaders()["Retry-After"]); used == 3 &&
			(err != nil || int64(retryAfter) < response.GetRetryAfterUs()/1_000_000) {
			t.Errorf("Retry-After is %q, and retry_after_us %d", response.GetHeaders()["Retry-After"], response.GetRetryAfterUs())
		}
		if plain := peek("ada", false); len(plain.GetHeaders()) > 0 || plain.GetRemaining() != response.GetRemaining() {
			t.Errorf("%d used: response without requested headers: %v", used, plain)
		}
		if _, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/check", `{"attributes": {"user": "ada"}}`); err != nil {
			t.Fatal(err)
		}
	}
}
