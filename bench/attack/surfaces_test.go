package attack

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/protofields"
	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/internal/server/checkhttp"
	"github.com/headgate/headgate/internal/server/envoyrls"
	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

// scriptedEngine returns the same decision for all requests, so that each surface shows the same decision.
type scriptedEngine struct {
	*headgate.Limiter
	decision atomic.Pointer[headgate.Decision]
}

func (s *scriptedEngine) Check(context.Context, headgate.Request) (headgate.Decision, error) {
	return *s.decision.Load(), nil
}

func (s *scriptedEngine) Begin(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	return s.Check(ctx, req)
}

func (s *scriptedEngine) CheckAll(context.Context, []headgate.BatchRequest) ([]headgate.Decision, error) {
	return []headgate.Decision{*s.decision.Load()}, nil
}

// surfaces are all interfaces that show a decision.
type surfaces struct {
	engine       *scriptedEngine
	http, check  http.Handler
	service      *checkgrpc.Service
	envoy        registered
	interceptors *grpclimit.Interceptors
	client       *client.Client
}

// registered captures a service that registers with a gRPC server.
type registered struct {
	description *grpc.ServiceDesc
	service     any
}

func (r *registered) RegisterService(d *grpc.ServiceDesc, service any) {
	r.description, r.service = d, service
}

func newSurfaces(t *testing.T) *surfaces {
	t.Helper()
	resolver, err := identity.New(identity.Options{Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	s := &surfaces{engine: &scriptedEngine{Limiter: newLimiter(t, nil, otp())}}
	s.http = httplimit.New(s.engine, httplimit.Options{Log: quiet(), OlderDraft: true})(http.NotFoundHandler())
	headers := limitfields.Choice{Draft: true, Legacy: true, OlderDraft: true}
	s.check = checkhttp.New(s.engine, checkhttp.Options{Log: quiet(), Headers: headers})
	s.service = checkgrpc.New(s.engine, checkgrpc.Options{Log: quiet(), Headers: headers})
	envoyrls.New(s.engine, envoyrls.Options{Identity: resolver, Headers: headers, Log: quiet()}).Register(&s.envoy)
	if s.interceptors, err = grpclimit.New(s.engine, grpclimit.Options{Metadata: true, Log: quiet()}); err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()))
	s.service.Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	s.client, err = client.New(client.Options{Addresses: []string{listener.Addr().String()}, Timeout: 30 * time.Second, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.Close)
	return s
}

// middleware returns the response to a client of a program with httplimit.
func (s *surfaces) middleware() (status int, response shownResponse) {
	w := httptest.NewRecorder()
	s.http.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	return w.Code, shownResponse{w.Header(), w.Body.Bytes()}
}

// forwardAuth returns the response to a client of a gateway with forward-auth.
func (s *surfaces) forwardAuth() (status int, response shownResponse) {
	w := httptest.NewRecorder()
	s.check.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/authorize", http.NoBody))
	return w.Code, shownResponse{w.Header(), w.Body.Bytes()}
}

// jsonResponse is the response of the check API.
type jsonResponse struct {
	Allowed    bool
	Remaining  *int64
	Reset      *time.Time
	RetryAfter *float64 `json:"retry_after"`
	Limits     []struct {
		Rule, Name string
		Allowed    bool
		Remaining  *int64
		RetryAfter *float64 `json:"retry_after"`
		ResetAfter *float64 `json:"reset_after"`
	}
	Headers map[string]string
}

func (s *surfaces) json(t *testing.T) (response jsonResponse) {
	t.Helper()
	w := httptest.NewRecorder()
	s.check.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(`{"attributes": {"user": "ada"}}`)))
	if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return response
}

func (s *surfaces) grpc(t *testing.T) *checkv1.CheckResponse {
	t.Helper()
	response, err := s.service.Check(t.Context(), &checkv1.CheckRequest{WithHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// rls returns the response to Envoy.
func (s *surfaces) rls(t *testing.T) *rlsv3.RateLimitResponse {
	t.Helper()
	encoded, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{
		{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "ada"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	result, err := s.envoy.description.Methods[0].Handler(s.envoy.service, t.Context(), func(request any) error {
		message, ok := request.(protofields.Readable)
		if !ok {
			return errors.New("not a message")
		}
		return message.ReadFields(encoded)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	message, _ := result.(protofields.Writable)
	response := &rlsv3.RateLimitResponse{}
	if err := proto.Unmarshal(message.AppendFields(nil), response); err != nil {
		t.Fatal(err)
	}
	return response
}

// trailers is a stream that keeps the trailers and sends nothing.
type trailers struct{ trailer metadata.MD }

func (*trailers) Method() string               { return "/a/b" }
func (*trailers) SetHeader(metadata.MD) error  { return nil }
func (*trailers) SendHeader(metadata.MD) error { return nil }
func (s *trailers) SetTrailer(md metadata.MD) error {
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

// call returns the response to a client of a program with grpclimit.
func (s *surfaces) call(t *testing.T) (*status.Status, metadata.MD) {
	t.Helper()
	stream := &trailers{}
	_, err := s.interceptors.Unary(grpc.NewContextWithServerTransportStream(t.Context(), stream), nil,
		&grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) { return nil, nil })
	return status.Convert(err), stream.trailer
}

// throughClient returns the response of a program that checks through package client.
func (s *surfaces) throughClient(t *testing.T) (status int, response shownResponse) {
	t.Helper()
	d, err := s.client.Check(t.Context(), headgate.Request{})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	remote := &scriptedEngine{Limiter: s.engine.Limiter}
	remote.decision.Store(&d)
	httplimit.New(remote, httplimit.Options{Log: quiet(), OlderDraft: true})(http.NotFoundHandler()).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	return w.Code, shownResponse{w.Header(), w.Body.Bytes()}
}

// usageResponse is the response of the admin API for a subject's usage.
type usageResponse struct {
	Limits []struct {
		Name             string
		Limit, Remaining int64
		ResetAt          time.Time
	}
}

// usage returns the usage of a rule by the subject, from the admin API. It returns false if the store is unavailable.
func usage(t *testing.T, m *randomCase, rule *headgate.Rule) (response usageResponse, ok bool) {
	t.Helper()
	q := url.Values{"ruleId": {rule.ID}, "subjectType": {"user"}, "subjectId": {"ada"}}
	if len(rule.By) == 1 {
		q.Set("subjectType", rule.By[0])
		q.Set("subjectId", m.request.Attributes[rule.By[0]])
	}
	if tier := m.request.Attributes["tier"]; tier != "" {
		q.Set("tier", tier)
	}
	w := httptest.NewRecorder()
	adminapi.New(m.limiter, adminapi.Options{Open: true, Log: quiet()}).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/v1/rate-limit/usage?"+q.Encode(), http.NoBody))
	if w.Code == http.StatusServiceUnavailable {
		return response, false // the store is unavailable, and the status reports it
	}
	if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%v, %d: %s", err, w.Code, w.Body)
	}
	return response, true
}
