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

// TestAnswerOfGRPC asks a service the same in JSON and in gRPC. A caller needs no more than the top of the answer to tell a client
// of its limits, in both of them.
func TestAnswerOfGRPC(t *testing.T) {
	t.Parallel()
	node := startServer(t, fmt.Sprintf("redis: {address: %q}\nheaders: [both, older-draft]\n", "redis://"+startRedis(t).Addr()),
		"rules: [{id: hour, by: [user], limit: 3/hour, strict: true}, {id: minute, by: [user], limit: {rate: 100/minute, algorithm: sliding_window}}]\n")
	conn, err := grpc.NewClient(node.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	service := checkv1.NewCheckServiceClient(conn)
	ask := func(user string, headers bool) *checkv1.CheckResponse {
		answer, err := service.Peek(t.Context(), &checkv1.CheckRequest{Attributes: map[string]string{"user": user}, WithHeaders: headers})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	for used := range 4 {
		var said struct {
			Remaining  int64
			Reset      time.Time
			RetryAfter float64 `json:"retry_after"`
			Headers    map[string]string
		}
		peeked, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/peek", `{"attributes": {"user": "ada"}}`)
		if err == nil {
			err = json.Unmarshal(peeked, &said)
		}
		if err != nil {
			t.Fatal(err)
		}
		answer := ask("ada", true)
		t.Logf("%d used: remaining %d, reset %d, headers %v", used, answer.GetRemaining(), answer.GetResetUs(), answer.GetHeaders())
		if answer.GetRemaining() != said.Remaining {
			t.Errorf("%d used: remaining is %v, in JSON %d", used, answer.GetRemaining(), said.Remaining)
		}
		// A counter that was never used is reset at once, which is later for the second question.
		if got := time.UnixMicro(answer.GetResetUs()); got.Sub(said.Reset).Abs() > 10*time.Second {
			t.Errorf("%d used: reset is %s, in JSON %s", used, got, said.Reset)
		}
		if got := slices.Sorted(maps.Keys(answer.GetHeaders())); !slices.Equal(got, slices.Sorted(maps.Keys(said.Headers))) || len(got) < 8 {
			t.Errorf("%d used: headers are %v, in JSON %v", used, got, said.Headers)
		}
		for _, name := range []string{"RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining"} {
			if answer.GetHeaders()[name] != said.Headers[name] {
				t.Errorf("%d used: %s is %q, in JSON %q", used, name, answer.GetHeaders()[name], said.Headers[name])
			}
		}
		if again, err := strconv.Atoi(answer.GetHeaders()["Retry-After"]); used == 3 &&
			(err != nil || int64(again) < answer.GetRetryAfterUs()/1_000_000) {
			t.Errorf("Retry-After is %q, and retry_after_us %d", answer.GetHeaders()["Retry-After"], answer.GetRetryAfterUs())
		}
		if plain := ask("ada", false); len(plain.GetHeaders()) > 0 || plain.GetRemaining() != answer.GetRemaining() {
			t.Errorf("%d used: a caller that does not ask for headers gets %v", used, plain)
		}
		if _, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/check", `{"attributes": {"user": "ada"}}`); err != nil {
			t.Fatal(err)
		}
	}
}
