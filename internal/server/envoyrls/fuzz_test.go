package envoyrls

import (
	"flag"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/memstore"
)

var requests = flag.Int("requests", 10_000, "number of hostile requests to send")

// checkBytes passes the bytes of a request to the service and decodes the response as Envoy would. The result must be a
// response with a status for each descriptor, or an error about the request.
func checkBytes(t testing.TB, s *Service, data []byte) {
	t.Helper()
	var req request
	if err := req.ReadFields(data); err != nil {
		t.Fatalf("%x: %v", data, err)
	}
	res, err := s.decide(t.Context(), &req)
	if err != nil {
		if code := status.Code(err); code != codes.InvalidArgument && code != codes.PermissionDenied {
			t.Fatalf("%x: %v", data, err)
		}
		return
	}
	var request rlsv3.RateLimitRequest
	var response rlsv3.RateLimitResponse
	if err := proto.Unmarshal(res.AppendFields(nil), &response); err != nil {
		t.Fatalf("%x: cannot decode the response: %v", data, err)
	}
	if proto.Unmarshal(data, &request) != nil {
		return // in a field that we ignore
	}
	if len(response.GetStatuses()) != len(request.GetDescriptors()) || response.GetOverallCode() == rlsv3.RateLimitResponse_UNKNOWN {
		t.Fatalf("%v: %v", &request, &response)
	}
}

func hostileService(t testing.TB) *Service {
	t.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{MaxEntries: 10_000}), rules...)
	if err != nil {
		t.Fatal(err)
	}
	return New(limiter, Options{Identity: resolver(t), Log: slog.New(slog.DiscardHandler)})
}

func FuzzRequest(f *testing.F) {
	s := hostileService(f)
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		data, err := proto.Marshal(someRequest(random))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkBytes(t, s, data) })
}

// TestHostileRequests sends empty, huge and malformed requests: each must get a response or an error in bounded time and memory.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long: make test-long runs it")
	}
	s := hostileService(t)
	random := rand.New(rand.NewPCG(rand.Uint64(), 1))
	var slowest time.Duration
	for range *requests {
		data, err := proto.Marshal(someRequest(random))
		if err != nil {
			t.Fatal(err)
		}
		for range random.IntN(4) {
			corrupt(random, &data)
		}
		began := time.Now()
		checkBytes(t, s, data)
		slowest = max(slowest, time.Since(began))
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	t.Logf("the slowest of %d took %v; %d MB are in use", *requests, slowest, memory.HeapInuse>>20)
	if slowest > time.Second || memory.HeapInuse > 200<<20 {
		t.Errorf("the slowest took %v, and %d MB are in use", slowest, memory.HeapInuse>>20)
	}
}

// corrupt changes some bytes of a message.
func corrupt(random *rand.Rand, data *[]byte) {
	d := *data
	switch {
	case len(d) == 0:
		*data = []byte{byte(random.Uint32())}
	case random.IntN(3) == 0:
		*data = d[:random.IntN(len(d))]
	case random.IntN(2) == 0:
		d[random.IntN(len(d))] = byte(random.Uint32())
	default:
		at := random.IntN(len(d))
		*data = slices.Insert(d, at, byte(random.Uint32()))
	}
}

func someRequest(random *rand.Rand) *rlsv3.RateLimitRequest {
	r := &rlsv3.RateLimitRequest{Domain: oneOf(random, "api", "api", "other", ""), HitsAddend: oneOf[uint32](random, 0, 0, 1, 7, 1<<32-1)}
	excess := 0 // sometimes far too many
	if random.IntN(500) == 0 {
		excess = random.IntN(5_000)
	}
	for range oneOf(random, 0, 1, 1, 1, 2, 3, 9, 70, excess) {
		d := &ratelimitv3.RateLimitDescriptor{IsNegativeHits: random.IntN(20) == 0}
		for range oneOf(random, 1, 1, 1, 2, 3, random.IntN(40)) {
			d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{
				Key:   oneOf(random, "remote_address", "tenant", "trial", "path", "", "\x00", strings.Repeat("k", random.IntN(300))),
				Value: oneOf(random, "192.0.2.1", "acme", "", "ü", strings.Repeat("v", random.IntN(1+2*excess))),
			})
		}
		if random.IntN(4) == 0 {
			d.HitsAddend = wrapperspb.UInt64(oneOf(random, 0, 1, 5, random.Uint64()))
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func oneOf[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }
