package attack

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/memstore"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const (
	// ceiling is what all clients together may ask for in an hour, of which they are not told, and each of them may have more.
	ceiling, perUser = 4, 100
	// secretRule is the name of the rule that clients must not learn.
	secretRule = "capacity-of-cluster-7"
)

// shownAnswer is what a client learns of its limits by headers, whatever carries them.
type shownAnswer struct {
	header http.Header
	body   []byte // a problem document, if the answer has one
}

// judgeCeiling holds an answer that denies against the limit that denied.
func judgeCeiling(t *testing.T, answer shownAnswer) {
	t.Helper()
	get := answer.header.Get
	t.Logf("X-RateLimit-Limit %q Remaining %q Reset %q, Retry-After %q, RateLimit %q, RateLimit-Policy %q, body %s",
		get("X-RateLimit-Limit"), get("X-RateLimit-Remaining"), get("X-RateLimit-Reset"), get("Retry-After"),
		get("RateLimit"), get("RateLimit-Policy"), answer.body)
	text := fmt.Sprint(answer.header, string(answer.body))
	if strings.Contains(text, secretRule) {
		t.Errorf("the rule is hidden, and the client is told its name: %s", text)
	}
	again, err := strconv.Atoi(get("Retry-After"))
	if err != nil || again < 1 || again > 3_700 {
		t.Errorf("Retry-After is %q, and a unit is back in at most an hour", get("Retry-After"))
	}
	if !slices.ContainsFunc(strings.Split(get("RateLimit-Policy"), ", "), func(item string) bool {
		return strings.HasSuffix(item, fmt.Sprintf(";q=%d;w=3600", ceiling))
	}) {
		t.Errorf("RateLimit-Policy is %q: no item for the limit that denied", get("RateLimit-Policy"))
	}
	if !strings.Contains(get("RateLimit"), ";r=0;t=") {
		t.Errorf("RateLimit is %q: no item with nothing left", get("RateLimit"))
	}
}

// judgeLegacy holds the headers that have room for one limit against the limit that denied.
func judgeLegacy(t *testing.T, header http.Header) {
	t.Helper()
	if got := header.Get("X-RateLimit-Limit"); got != strconv.Itoa(ceiling) {
		t.Errorf("X-RateLimit-Limit is %q, want that of the limit that denied, %d", got, ceiling)
	}
	if got := header.Get("X-RateLimit-Remaining"); got != "0" {
		t.Errorf("X-RateLimit-Remaining is %q in a denial", got)
	}
	reset, err := strconv.ParseInt(header.Get("X-RateLimit-Reset"), 10, 64)
	if err != nil || time.Unix(reset, 0).Before(time.Now()) {
		t.Errorf("X-RateLimit-Reset is %q in a denial", header.Get("X-RateLimit-Reset"))
	}
}

// judgeProblem holds the body of a denial against the headers beside it.
func judgeProblem(t *testing.T, answer shownAnswer) {
	t.Helper()
	var problem struct {
		Status     int      `json:"status"`
		Violated   []string `json:"violated-policies"`
		Rule       string   `json:"rule"`
		RetryAfter int      `json:"retry_after"`
	}
	if err := json.Unmarshal(answer.body, &problem); err != nil {
		t.Fatalf("%v: %s", err, answer.body)
	}
	if problem.Rule == "" || len(problem.Violated) != 1 || problem.Status != http.StatusTooManyRequests ||
		strconv.Itoa(problem.RetryAfter) != answer.header.Get("Retry-After") {
		t.Errorf("the body is %s: want a 429 that names a policy, and the wait of Retry-After, %s", answer.body, answer.header.Get("Retry-After"))
	}
	for _, name := range problem.Violated {
		if !strings.Contains(answer.header.Get("RateLimit-Policy"), strconv.Quote(name)) {
			t.Errorf("the body names policy %q, and RateLimit-Policy is %q", name, answer.header.Get("RateLimit-Policy"))
		}
	}
}

// TestCeilingService exceeds a limit that all clients share, and of which they are not told, at each entrance of the service.
func TestCeilingService(t *testing.T) {
	t.Parallel()
	node := startServer(t, fmt.Sprintf("redis: {address: %q}\n", "redis://"+startRedis(t).Addr()), fmt.Sprintf(
		"rules: [{id: %s, by: [], limit: %d/hour}, {id: user, by: [user], limit: %d/hour}]\n", secretRule, ceiling, perUser))
	check := func() []byte {
		answer, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/check", `{"attributes": {"user": "ada"}}`)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	for range ceiling {
		check()
	}
	t.Run("JSON", func(t *testing.T) {
		var said struct {
			Allowed   bool
			Remaining *int64
			Reset     *time.Time
			Headers   map[string]string
		}
		answer := check()
		if err := json.Unmarshal(answer, &said); err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		for name, value := range said.Headers {
			header.Set(name, value)
		}
		judgeCeiling(t, shownAnswer{header: header})
		judgeLegacy(t, header)
		if said.Allowed || said.Remaining == nil || *said.Remaining != 0 || said.Reset == nil || said.Reset.Before(time.Now()) {
			t.Errorf("the answer to a request over the ceiling is %s", answer)
		}
	})
	t.Run("forward-auth", func(t *testing.T) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+node.HTTP+"/v1/authorize", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-User-Id", "ada")
		judgeHTTP(t, r)
	})
	conn, err := grpc.NewClient(node.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Run("gRPC", func(t *testing.T) {
		answer, err := checkv1.NewCheckServiceClient(conn).Check(t.Context(),
			&checkv1.CheckRequest{Attributes: map[string]string{"user": "ada"}})
		if err != nil {
			t.Fatal(err)
		}
		if answer.GetAllowed() || answer.GetRetryAfterUs() <= 0 {
			t.Errorf("the answer to a request over the ceiling is %v", answer)
		}
	})
	t.Run("Envoy", func(t *testing.T) {
		answer, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
			Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{
				{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "ada"}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		for _, h := range answer.GetResponseHeadersToAdd() {
			header.Set(h.GetKey(), h.GetValue())
		}
		shown := shownAnswer{header, answer.GetRawBody()}
		judgeCeiling(t, shown)
		judgeLegacy(t, header)
		judgeProblem(t, shown)
		s := answer.GetStatuses()[0]
		if s.GetCode() != rlsv3.RateLimitResponse_OVER_LIMIT || s.GetLimitRemaining() != 0 || strings.Contains(s.String(), secretRule) ||
			s.GetCurrentLimit().GetRequestsPerUnit() != ceiling || s.GetDurationUntilReset().AsDuration() <= 0 {
			t.Errorf("the descriptor's status is %v", s)
		}
	})
}

// judgeHTTP sends a request over the ceiling and judges what the client gets.
func judgeHTTP(t *testing.T, r *http.Request) {
	t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %s over the ceiling", response.Status)
	}
	shown := shownAnswer{response.Header, body}
	judgeCeiling(t, shown)
	judgeLegacy(t, response.Header)
	judgeProblem(t, shown)
}

// TestCeilingLibrary does the same to a program with middleware in it.
func TestCeilingLibrary(t *testing.T) {
	t.Parallel()
	limiter := newLimiter(t, memstore.New(memstore.Options{}),
		headgate.Rule{ID: secretRule, By: []string{}, Limit: headgate.PerHour(ceiling)},
		headgate.Rule{ID: "ip", By: []string{"ip"}, Limit: headgate.PerHour(perUser)})
	for range ceiling {
		if _, err := limiter.Check(t.Context(), headgate.Request{Attributes: headgate.Attributes{"ip": "127.0.0.1"}}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("net/http", func(t *testing.T) {
		server := httptest.NewServer(httplimit.New(limiter, httplimit.Options{Log: quiet()})(http.NotFoundHandler()))
		defer server.Close()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		judgeHTTP(t, r)
	})
	t.Run("gRPC", func(t *testing.T) {
		interceptors, err := grpclimit.New(limiter, grpclimit.Options{Metadata: true, Log: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(grpc.UnaryInterceptor(interceptors.Unary))
		healthv1.RegisterHealthServer(server, &countingHealth{})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = server.Serve(listener) }()
		defer server.Stop()
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var trailer metadata.MD
		_, err = healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}, grpc.Trailer(&trailer))
		if err == nil || strings.Contains(err.Error(), secretRule) {
			t.Errorf("a call over the ceiling: %v", err)
		}
		header := http.Header{}
		for name, values := range trailer {
			header.Set(name, values[0])
		}
		judgeCeiling(t, shownAnswer{header: header})
	})
}
