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
	// ceiling is the hidden hourly limit of all clients together; perUser is the larger limit of each client.
	ceiling, perUser = 4, 100
	// secretRule is the name of the rule that clients must not learn.
	secretRule = "capacity-of-cluster-7"
)

// shownResponse is what a response shows a client of its limits.
type shownResponse struct {
	header http.Header
	body   []byte // a problem document, if there is one
}

// judgeCeiling compares a denial with the limit that denied.
func judgeCeiling(t *testing.T, response shownResponse) {
	t.Helper()
	get := response.header.Get
	t.Logf("X-RateLimit-Limit %q Remaining %q Reset %q, Retry-After %q, RateLimit %q, RateLimit-Policy %q, body %s",
		get("X-RateLimit-Limit"), get("X-RateLimit-Remaining"), get("X-RateLimit-Reset"), get("Retry-After"),
		get("RateLimit"), get("RateLimit-Policy"), response.body)
	text := fmt.Sprint(response.header, string(response.body))
	if strings.Contains(text, secretRule) {
		t.Errorf("the response names a hidden rule: %s", text)
	}
	retryAfter, err := strconv.Atoi(get("Retry-After"))
	if err != nil || retryAfter < 1 || retryAfter > 3_700 {
		t.Errorf("Retry-After is %q, but a unit is available within an hour", get("Retry-After"))
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

// judgeLegacy compares the headers for a single limit with the limit that denied.
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

// judgeProblem compares the body of a denial with its headers.
func judgeProblem(t *testing.T, response shownResponse) {
	t.Helper()
	var problem struct {
		Status     int      `json:"status"`
		Violated   []string `json:"violated-policies"`
		Rule       string   `json:"rule"`
		RetryAfter int      `json:"retry_after"`
	}
	if err := json.Unmarshal(response.body, &problem); err != nil {
		t.Fatalf("%v: %s", err, response.body)
	}
	if problem.Rule == "" || len(problem.Violated) != 1 || problem.Status != http.StatusTooManyRequests ||
		strconv.Itoa(problem.RetryAfter) != response.header.Get("Retry-After") {
		t.Errorf("the body is %s: want status 429, one policy, and retry_after of %s", response.body, response.header.Get("Retry-After"))
	}
	for _, name := range problem.Violated {
		if !strings.Contains(response.header.Get("RateLimit-Policy"), strconv.Quote(name)) {
			t.Errorf("the body names policy %q, and RateLimit-Policy is %q", name, response.header.Get("RateLimit-Policy"))
		}
	}
}

// TestCeilingService exceeds a hidden limit that all clients share, at each entry point of the service.
func TestCeilingService(t *testing.T) {
	t.Parallel()
	node := startServer(t, fmt.Sprintf("redis: {address: %q}\n", "redis://"+startRedis(t).Addr()), fmt.Sprintf(
		"rules: [{id: %s, by: [], limit: %d/hour}, {id: user, by: [user], limit: %d/hour}]\n", secretRule, ceiling, perUser))
	check := func() []byte {
		response, err := node.Fetch(t.Context(), http.MethodPost, node.HTTP, "/v1/check", `{"attributes": {"user": "ada"}}`)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	for range ceiling {
		check()
	}
	t.Run("JSON", func(t *testing.T) {
		var decision struct {
			Allowed   bool
			Remaining *int64
			Reset     *time.Time
			Headers   map[string]string
		}
		response := check()
		if err := json.Unmarshal(response, &decision); err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		for name, value := range decision.Headers {
			header.Set(name, value)
		}
		judgeCeiling(t, shownResponse{header: header})
		judgeLegacy(t, header)
		if decision.Allowed || decision.Remaining == nil || *decision.Remaining != 0 || decision.Reset == nil || decision.Reset.Before(time.Now()) {
			t.Errorf("response to a request over the ceiling: %s", response)
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
		response, err := checkv1.NewCheckServiceClient(conn).Check(t.Context(),
			&checkv1.CheckRequest{Attributes: map[string]string{"user": "ada"}})
		if err != nil {
			t.Fatal(err)
		}
		if response.GetAllowed() || response.GetRetryAfterUs() <= 0 {
			t.Errorf("response to a request over the ceiling: %v", response)
		}
	})
	t.Run("Envoy", func(t *testing.T) {
		response, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
			Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{
				{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "ada"}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		for _, h := range response.GetResponseHeadersToAdd() {
			header.Set(h.GetKey(), h.GetValue())
		}
		shown := shownResponse{header, response.GetRawBody()}
		judgeCeiling(t, shown)
		judgeLegacy(t, header)
		judgeProblem(t, shown)
		s := response.GetStatuses()[0]
		if s.GetCode() != rlsv3.RateLimitResponse_OVER_LIMIT || s.GetLimitRemaining() != 0 || strings.Contains(s.String(), secretRule) ||
			s.GetCurrentLimit().GetRequestsPerUnit() != ceiling || s.GetDurationUntilReset().AsDuration() <= 0 {
			t.Errorf("the descriptor's status is %v", s)
		}
	})
}

// judgeHTTP sends a request over the ceiling and judges the response.
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
	shown := shownResponse{response.Header, body}
	judgeCeiling(t, shown)
	judgeLegacy(t, response.Header)
	judgeProblem(t, shown)
}

// TestCeilingLibrary does the same with the middleware of the library.
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
		judgeCeiling(t, shownResponse{header: header})
	})
}
