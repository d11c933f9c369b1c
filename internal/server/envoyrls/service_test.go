package envoyrls

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/identity"
	"github.com/headgate/headgate/internal/limitfields"
	"github.com/headgate/headgate/internal/server/check"
	"github.com/headgate/headgate/internal/server/checkgrpc"
	"github.com/headgate/headgate/memstore"
)

func window(n int64, d time.Duration) headgate.Limit {
	return headgate.Limit{Algorithm: headgate.FixedWindow, Count: n, Window: d}
}

var rules = []headgate.Rule{
	{
		ID: "by-address", By: []string{"ip"}, Limit: window(3, time.Hour),
		Match: headgate.Match{Attributes: map[string]headgate.Pattern{"entries": headgate.OneOf("remote_address")}},
	},
	{
		ID: "by-tenant", By: []string{"descriptor.tenant"}, Limit: window(10, 15*time.Minute),
		Match: headgate.Match{Attributes: map[string]headgate.Pattern{"domain": headgate.OneOf("api"), "tenant": headgate.IsPresent()}},
	},
	{
		ID: "asked", By: []string{"descriptor.asked"}, Limit: window(1, time.Hour), MaxCallerLimit: headgate.PerHour(100),
		Match: headgate.Match{Attributes: map[string]headgate.Pattern{"descriptor.asked": headgate.IsPresent()}},
	},
	{
		ID: "trial", By: []string{"descriptor.trial"}, Limit: window(1, time.Second), Mode: headgate.Shadow,
		Match: headgate.Match{Attributes: map[string]headgate.Pattern{"descriptor.trial": headgate.IsPresent()}},
	},
}

// envoy returns a client that is connected to a server.
func envoy(t *testing.T, options Options) rlsv3.RateLimitServiceClient {
	t.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{}), rules...)
	if err != nil {
		t.Fatal(err)
	}
	options.Headers = limitfields.Choice{Draft: true, Legacy: true}
	options.Log, options.Identity = slog.New(slog.DiscardHandler), resolver(t)
	server := grpc.NewServer(grpc.ForceServerCodecV2(checkgrpc.Codec()))
	New(limiter, options).Register(server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return rlsv3.NewRateLimitServiceClient(conn)
}

func resolver(t testing.TB) *identity.Resolver {
	t.Helper()
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resolver.Close)
	return resolver
}

// of returns a descriptor with keys and values.
func of(pairs ...string) *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{}
	for pair := range slices.Chunk(pairs, 2) {
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: pair[0], Value: pair[1]})
	}
	return d
}

func shouldRateLimit(t *testing.T, e rlsv3.RateLimitServiceClient, hits uint32, descriptors ...*ratelimitv3.RateLimitDescriptor) *rlsv3.RateLimitResponse {
	t.Helper()
	r, err := e.ShouldRateLimit(context.Background(), &rlsv3.RateLimitRequest{Domain: "api", Descriptors: descriptors, HitsAddend: hits})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestStatuses checks the status of each descriptor, and that all of them are charged or none.
func TestStatuses(t *testing.T) {
	t.Parallel()
	e := envoy(t, Options{})
	address, tenant, nothing := of("remote_address", "192.0.2.1"), of("tenant", "acme"), of("generic_key", "none")
	for left := uint32(2); ; left-- {
		r := shouldRateLimit(t, e, 0, address, nothing, tenant)
		s := r.GetStatuses()
		if r.GetOverallCode() != rlsv3.RateLimitResponse_OK || len(s) != 3 || s[0].GetLimitRemaining() != left ||
			s[1].GetCode() != rlsv3.RateLimitResponse_OK || s[1].GetCurrentLimit() != nil || s[2].GetLimitRemaining() != left+7 ||
			r.GetDynamicMetadata() != nil {
			t.Fatalf("%v", r)
		}
		if left == 0 {
			break
		}
	}
	r := shouldRateLimit(t, e, 0, address, nothing, tenant)
	s := r.GetStatuses()
	limit, reset := s[0].GetCurrentLimit(), s[0].GetDurationUntilReset().AsDuration()
	if r.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT || s[0].GetCode() != rlsv3.RateLimitResponse_OVER_LIMIT ||
		s[1].GetCode() != rlsv3.RateLimitResponse_OK || s[2].GetCode() != rlsv3.RateLimitResponse_OK || s[2].GetLimitRemaining() != 7 {
		t.Errorf("%v", r)
	}
	if limit.GetRequestsPerUnit() != 3 || limit.GetUnit() != rlsv3.RateLimitResponse_RateLimit_HOUR || limit.GetName() != "by-address" ||
		limit.GetUnitMultiplier() != nil || reset < 59*time.Minute || reset > time.Hour {
		t.Errorf("%v, reset in %v", limit, reset)
	}
	if l := s[2].GetCurrentLimit(); l.GetUnit() != rlsv3.RateLimitResponse_RateLimit_MINUTE || l.GetUnitMultiplier().GetValue() != 15 {
		t.Errorf("%v", l)
	}
	header := map[string]string{}
	for _, h := range r.GetResponseHeadersToAdd() {
		header[h.GetKey()] = h.GetValue()
	}
	if header["x-ratelimit-limit"] != "3" || header["x-ratelimit-remaining"] != "0" || header["retry-after"] == "" ||
		!strings.HasPrefix(header["ratelimit"], `"by-address";r=0;t=`) || !strings.Contains(header["ratelimit-policy"], `"by-tenant";q=10;w=900`) {
		t.Errorf("%v", header)
	}
	var problem struct {
		Error, Rule string
		RetryAfter  int64 `json:"retry_after"`
	}
	if err := json.Unmarshal(r.GetRawBody(), &problem); err != nil || problem.Error != "rate_limit_exceeded" || problem.Rule != "by-address" ||
		strconv.FormatInt(problem.RetryAfter, 10) != header["retry-after"] || header["content-type"] != "application/problem+json" {
		t.Errorf("%v: %s", err, r.GetRawBody())
	}
	fields := r.GetDynamicMetadata().GetFields()
	if fields["rule"].GetStringValue() != "by-address" || fields["version"].GetStringValue() == "" ||
		fields["path"].GetStringValue() != "store" || fields["retry_after"].GetNumberValue() < 3_500 {
		t.Errorf("%v", fields)
	}
}

// TestDescriptorsWithoutEntries checks that a descriptor without entries has the status OK regardless of its other fields,
// and does not affect the others.
func TestDescriptorsWithoutEntries(t *testing.T) {
	t.Parallel()
	const ok, over = rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT
	e := envoy(t, Options{})
	address, unusual := of("remote_address", "192.0.2.1"), of()
	unusual.HitsAddend, unusual.IsNegativeHits = wrapperspb.UInt64(1<<40), true
	unusual.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{Unit: 99}
	for _, c := range []struct {
		descriptors []*ratelimitv3.RateLimitDescriptor
		codes       []rlsv3.RateLimitResponse_Code
		left        int // of the limit on the address, if requested
	}{
		{[]*ratelimitv3.RateLimitDescriptor{of()}, []rlsv3.RateLimitResponse_Code{ok}, 0},
		{[]*ratelimitv3.RateLimitDescriptor{unusual, of()}, []rlsv3.RateLimitResponse_Code{ok, ok}, 0},
		{[]*ratelimitv3.RateLimitDescriptor{of(), address}, []rlsv3.RateLimitResponse_Code{ok, ok}, 2},
		{[]*ratelimitv3.RateLimitDescriptor{address, unusual}, []rlsv3.RateLimitResponse_Code{ok, ok}, 1},
		{[]*ratelimitv3.RateLimitDescriptor{unusual, address, of()}, []rlsv3.RateLimitResponse_Code{ok, ok, ok}, 0},
		{[]*ratelimitv3.RateLimitDescriptor{of(), unusual, address, of()}, []rlsv3.RateLimitResponse_Code{ok, ok, over, ok}, 0},
	} {
		r := shouldRateLimit(t, e, 0, c.descriptors...)
		overall := ok
		if slices.Contains(c.codes, over) {
			overall = over
		}
		version := r.GetDynamicMetadata().GetFields()["version"].GetStringValue()
		if r.GetOverallCode() != overall || len(r.GetStatuses()) != len(c.codes) || (overall == over) != (version != "") {
			t.Fatalf("%v: %v", c.descriptors, r)
		}
		for i, s := range r.GetStatuses() {
			hasEntries := len(c.descriptors[i].GetEntries()) > 0
			if s.GetCode() != c.codes[i] || hasEntries != (s.GetCurrentLimit() != nil) || hasEntries && s.GetLimitRemaining() != uint32(c.left) {
				t.Errorf("%v: status %d is %v", c.descriptors, i+1, s)
			}
		}
	}
}

// TestHits checks that hits_addend of a descriptor takes precedence over that of the request, that 0 charges nothing, and
// that negative hits refund.
func TestHits(t *testing.T) {
	t.Parallel()
	e := envoy(t, Options{MayRefund: check.AllRefund})
	tenant := of("tenant", "acme")
	left := func(want uint32) {
		t.Helper()
		peek := of("tenant", "acme")
		peek.HitsAddend = wrapperspb.UInt64(0)
		if got := shouldRateLimit(t, e, 5, peek).GetStatuses()[0].GetLimitRemaining(); got != want {
			t.Errorf("%d remaining, want %d", got, want)
		}
	}
	shouldRateLimit(t, e, 0, tenant)
	left(9)
	shouldRateLimit(t, e, 3, tenant)
	left(6)
	tenant.HitsAddend = wrapperspb.UInt64(5)
	shouldRateLimit(t, e, 3, tenant)
	left(1)
	if r := shouldRateLimit(t, e, 0, tenant); r.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("%v", r)
	}
	left(1)
	tenant.IsNegativeHits = true
	if r := shouldRateLimit(t, e, 0, tenant); r.GetOverallCode() != rlsv3.RateLimitResponse_OK {
		t.Errorf("%v", r)
	}
	left(6)
}

// TestMayRefund checks that negative hits need the authorization to refund, and that other requests do not.
func TestMayRefund(t *testing.T) {
	t.Parallel()
	may := func(_ context.Context, authorization, peer string) error {
		if authorization == "Bearer right" && strings.HasPrefix(peer, "127.0.0.1:") {
			return nil
		}
		return fmt.Errorf("%q may not", authorization)
	}
	negative := of("tenant", "acme")
	negative.IsNegativeHits = true
	for _, c := range []struct {
		options       Options
		authorization string
		descriptor    *ratelimitv3.RateLimitDescriptor
		denial        string
	}{
		{Options{}, "Bearer right", negative, "this server allows no refunds"},
		{Options{MayRefund: may}, "Bearer wrong", negative, `"Bearer wrong" may not`},
		{Options{MayRefund: may}, "Bearer right", negative, ""},
		{Options{MayRefund: check.AllRefund}, "Bearer wrong", negative, ""},
		{Options{MayRefund: may}, "Bearer wrong", of("tenant", "acme"), ""},
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", c.authorization)
		descriptors := []*ratelimitv3.RateLimitDescriptor{of("tenant", "globex"), c.descriptor}
		_, err := envoy(t, c.options).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "api", Descriptors: descriptors})
		want := codes.OK
		if c.denial != "" {
			want = codes.PermissionDenied
		}
		if status.Code(err) != want || err != nil && !strings.Contains(err.Error(), "is_negative_hits: "+c.denial) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestOverride checks that a descriptor may contain a limit if the rule allows it.
func TestOverride(t *testing.T) {
	t.Parallel()
	e := envoy(t, Options{})
	with := func(requests uint32, unit typev3.RateLimitUnit, times uint32) *ratelimitv3.RateLimitDescriptor {
		d := of("asked", "x")
		d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
		if times > 0 {
			d.Limit.UnitMultiplier = wrapperspb.UInt32(times)
		}
		return d
	}
	for _, c := range []struct {
		descriptor *ratelimitv3.RateLimitDescriptor
		limit      string
	}{
		{of("asked", "x"), "1 HOUR 0"},
		{with(50, typev3.RateLimitUnit_HOUR, 0), "50 HOUR 0"},
		{with(50, typev3.RateLimitUnit_HOUR, 3), "50 HOUR 3"},
		{with(50, typev3.RateLimitUnit_MONTH, 0), "50 MONTH 0"},
		{with(50, typev3.RateLimitUnit_DAY, 7), "50 WEEK 0"},
		{with(50, typev3.RateLimitUnit_DAY, 60), "50 MONTH 2"},
		{with(50, typev3.RateLimitUnit_MINUTE, 0), "100 HOUR 0"},
		{with(500, typev3.RateLimitUnit_YEAR, 0), "100 HOUR 0"},
		{with(0, typev3.RateLimitUnit_HOUR, 0), "0 HOUR 0"},
	} {
		c.descriptor.HitsAddend = wrapperspb.UInt64(0)
		limit := shouldRateLimit(t, e, 0, c.descriptor).GetStatuses()[0].GetCurrentLimit()
		if got := fmt.Sprint(limit.GetRequestsPerUnit(), limit.GetUnit(), limit.GetUnitMultiplier().GetValue()); got != c.limit {
			t.Errorf("%v: limit %s, want %s", c.descriptor, got, c.limit)
		}
	}
	for text, d := range map[string]*ratelimitv3.RateLimitDescriptor{
		"descriptor 1: limit: invalid unit 0: must be 1 (second) to 6 (year)":          with(1, 0, 0),
		"descriptor 1: limit: invalid unit 99: must be 1 (second) to 6 (year)":         with(1, 99, 0),
		"descriptor 1: limit: unit_multiplier 366: must be at most 365 with this unit": with(1, 4, 366),
	} {
		_, err := e.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "api", Descriptors: []*ratelimitv3.RateLimitDescriptor{d}})
		if s := status.Convert(err); s.Code() != codes.InvalidArgument || s.Message() != text {
			t.Errorf("%v, want %s", err, text)
		}
	}
}

// TestShadow checks that would-be denials are reported to operators only.
func TestShadow(t *testing.T) {
	t.Parallel()
	e := envoy(t, Options{})
	trial := of("trial", "x")
	shouldRateLimit(t, e, 0, trial)
	r := shouldRateLimit(t, e, 1, trial)
	if r.GetOverallCode() != rlsv3.RateLimitResponse_OK || r.GetDynamicMetadata().GetFields()["would_deny"].GetStringValue() != "trial" ||
		r.GetStatuses()[0].GetCurrentLimit() != nil || len(r.GetResponseHeadersToAdd()) != 0 {
		t.Errorf("%v", r)
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	d := descriptor{entries: []entry{
		{"remote_address", "2001:db8::1"},
		{"path", "//x?y"},
		{"method", "HEAD"},
		{"generic_key", "a"},
		{"generic_key", "b"},
		{"domain", "forged"},
		{"entries", "forged"},
		{`a,b\`, "c"},
	}}
	got, err := d.attributes("api", resolver(t))
	if err != nil {
		t.Fatal(err)
	}
	want := headgate.Attributes{
		"domain": "api", "entries": `remote_address,path,method,generic_key,generic_key,domain,entries,a\,b\\`,
		"descriptor.remote_address": "2001:db8::1", "ip": "2001:db8::/64", "descriptor.path": "//x?y", "path": "/x", headgate.OtherPath: "//x?/",
		"descriptor.method": "HEAD", "method": "GET",
		"descriptor.generic_key": "a", "descriptor.generic_key.2": "b", "descriptor.domain": "forged", "descriptor.entries": "forged",
		`descriptor.a,b\`: "c",
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
}

// TestInvalidRequests checks the errors of invalid requests.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	e := envoy(t, Options{})
	many := make([]*ratelimitv3.RateLimitDescriptor, maxDescriptors+1)
	for i := range many {
		many[i] = of("a", "b")
	}
	long := of()
	for range maxEntries + 1 {
		long.Entries = append(long.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: "a", Value: "b"})
	}
	huge := of("a", "b")
	huge.HitsAddend = wrapperspb.UInt64(1 << 40)
	for want, req := range map[string]*rlsv3.RateLimitRequest{
		"domain is empty":            {Descriptors: many[:1]},
		"no descriptors: add":        {Domain: "api"},
		"more than 64 descriptors":   {Domain: "api", Descriptors: many},
		"descriptor 2: more than 32": {Domain: "api", Descriptors: []*ratelimitv3.RateLimitDescriptor{many[0], long}},
		"hits_addend 1099511627776":  {Domain: "api", Descriptors: []*ratelimitv3.RateLimitDescriptor{huge}},
		"cost 4294967295":            {Domain: "api", Descriptors: many[:1], HitsAddend: 1<<32 - 1},
	} {
		_, err := e.ShouldRateLimit(t.Context(), req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
