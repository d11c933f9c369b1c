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

// scriptedEngine decides all requests alike, so that each face tells of the same decision.
type scriptedEngine struct {
	*headgate.Limiter
	decision atomic.Pointer[headgate.Decision]
}

func (s *scriptedEngine) Check(context.Context, headgate.Request) (headgate.Decision, error) {
	return *s.decision.Load(), nil
}

func (s *scriptedEngine) CheckAll(context.Context, []headgate.BatchRequest) ([]headgate.Decision, error) {
	return []headgate.Decision{*s.decision.Load()}, nil
}

// faces are all ways in which a decision is told.
type faces struct {
	engine       *scriptedEngine
	http, check  http.Handler
	service      *checkgrpc.Service
	envoy        registered
	interceptors *grpclimit.Interceptors
	client       *client.Client
}

// registered is a service as a gRPC server gets it.
type registered struct {
	description *grpc.ServiceDesc
	service     any
}

func (r *registered) RegisterService(d *grpc.ServiceDesc, service any) {
	r.description, r.service = d, service
}

func newFaces(t *testing.T) *faces {
	t.Helper()
	who, err := identity.New(identity.Options{Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	f := &faces{engine: &scriptedEngine{Limiter: newLimiter(t, nil, otp())}}
	f.http = httplimit.New(f.engine, httplimit.Options{Log: quiet(), OlderDraft: true})(http.NotFoundHandler())
	headers := limitfields.Choice{Draft: true, Legacy: true, OlderDraft: true}
	f.check = checkhttp.New(f.engine, checkhttp.Options{Log: quiet(), Headers: headers})
	f.service = checkgrpc.New(f.engine, checkgrpc.Options{Log: quiet(), Headers: headers})
	envoyrls.New(f.engine, envoyrls.Options{Identity: who, Headers: headers, Log: quiet()}).Register(&f.envoy)
	if f.interceptors, err = grpclimit.New(f.engine, grpclimit.Options{Metadata: true, Log: quiet()}); err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()))
	f.service.Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	f.client, err = client.New(client.Options{Addresses: []string{listener.Addr().String()}, Timeout: 30 * time.Second, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.client.Close)
	return f
}

// middleware is what a client of a program with httplimit gets.
func (f *faces) middleware() (status int, answer shownAnswer) {
	w := httptest.NewRecorder()
	f.http.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	return w.Code, shownAnswer{w.Header(), w.Body.Bytes()}
}

// forwardAuth is what a client of a gateway that asks for forward-auth gets.
func (f *faces) forwardAuth() (status int, answer shownAnswer) {
	w := httptest.NewRecorder()
	f.check.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/authorize", http.NoBody))
	return w.Code, shownAnswer{w.Header(), w.Body.Bytes()}
}

// jsonAnswer is that of the check API.
type jsonAnswer struct {
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

func (f *faces) json(t *testing.T) (answer jsonAnswer) {
	t.Helper()
	w := httptest.NewRecorder()
	f.check.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(`{"attributes": {"user": "ada"}}`)))
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return answer
}

func (f *faces) grpc(t *testing.T) *checkv1.CheckResponse {
	t.Helper()
	answer, err := f.service.Check(t.Context(), &checkv1.CheckRequest{WithHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// rls is what Envoy is answered.
func (f *faces) rls(t *testing.T) *rlsv3.RateLimitResponse {
	t.Helper()
	asked, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{
		{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "ada"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	said, err := f.envoy.description.Methods[0].Handler(f.envoy.service, t.Context(), func(request any) error {
		message, ok := request.(protofields.Readable)
		if !ok {
			return errors.New("not a message")
		}
		return message.ReadFields(asked)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	message, _ := said.(protofields.Writable)
	answer := &rlsv3.RateLimitResponse{}
	if err := proto.Unmarshal(message.AppendFields(nil), answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// trailers is a stream of which nothing is sent.
type trailers struct{ trailer metadata.MD }

func (*trailers) Method() string               { return "/a/b" }
func (*trailers) SetHeader(metadata.MD) error  { return nil }
func (*trailers) SendHeader(metadata.MD) error { return nil }
func (s *trailers) SetTrailer(md metadata.MD) error {
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

// call is what a client of a program with grpclimit gets.
func (f *faces) call(t *testing.T) (*status.Status, metadata.MD) {
	t.Helper()
	stream := &trailers{}
	_, err := f.interceptors.Unary(grpc.NewContextWithServerTransportStream(t.Context(), stream), nil,
		&grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) { return nil, nil })
	return status.Convert(err), stream.trailer
}

// throughClient is the headers that a program gets from package client.
func (f *faces) throughClient(t *testing.T) (status int, answer shownAnswer) {
	t.Helper()
	d, err := f.client.Check(t.Context(), headgate.Request{})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	remote := &scriptedEngine{Limiter: f.engine.Limiter}
	remote.decision.Store(&d)
	httplimit.New(remote, httplimit.Options{Log: quiet(), OlderDraft: true})(http.NotFoundHandler()).
		ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	return w.Code, shownAnswer{w.Header(), w.Body.Bytes()}
}

// usageAnswer is what an operator sees of a subject.
type usageAnswer struct {
	Limits []struct {
		Name             string
		Limit, Remaining int64
		ResetAt          time.Time
	}
}

// usage asks the admin API what a subject has left of a rule.
func usage(t *testing.T, m *mix, rule *headgate.Rule) (answer usageAnswer, ok bool) {
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
		return answer, false // the store is away, and that is what it says
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%v, %d: %s", err, w.Code, w.Body)
	}
	return answer, true
}
