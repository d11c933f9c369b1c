//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	checkv1 "github.com/headgate/headgate/proto/headgate/check/v1"
)

const (
	preface = http2.ClientPreface
	service = "/headgate.check.v1.CheckService/"

	frameData, frameHeaders, framePriority, frameReset, frameSettings, framePush  = 0, 1, 2, 3, 4, 5
	framePing, frameGOAWAY, frameWindow, frameContinuation, endStream, endHeaders = 6, 7, 8, 9, 1, 4
)

// frame returns an HTTP/2 frame.
func frame(kind, flags byte, stream uint32, payload string) string {
	return frameOf(len(payload), kind, flags, stream, payload)
}

// frameOf returns an HTTP/2 frame with the given, possibly false, length.
func frameOf(length int, kind, flags byte, stream uint32, payload string) string {
	head := []byte{byte(length >> 16), byte(length >> 8), byte(length), kind, flags}
	return string(binary.BigEndian.AppendUint32(head, stream)) + payload
}

// fields encodes alternating names and values with HPACK, without entries in the dynamic table.
func fields(texts ...string) string {
	var b bytes.Buffer
	encoder := hpack.NewEncoder(&b)
	for pair := range slices.Chunk(texts, 2) {
		_ = encoder.WriteField(hpack.HeaderField{Name: pair[0], Value: pair[1], Sensitive: true}) // writing to a buffer cannot fail
	}
	return b.String()
}

// begin returns the headers of a call.
func begin(stream uint32, method string, more ...string) string {
	return frame(frameHeaders, endHeaders, stream, callFields(method, more...))
}

func callFields(method string, more ...string) string {
	return fields(append([]string{
		":method", "POST", ":scheme", "http", ":path", method, ":authority", "x", "content-type", "application/grpc", "te",
		"trailers",
	}, more...)...)
}

// message returns a gRPC message with the given, possibly false, length.
func message(length int, text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(length))) + text
}

func call(stream uint32, method, data string) string {
	return begin(stream, method) + frame(frameData, endStream, stream, data)
}

var (
	greeting = preface + frame(frameSettings, 0, 0, "")
	ping     = frame(framePing, 0, 0, "12345678")
	lastPing = frame(framePing, 0, 0, "the last")
)

// sendFrames sends text over HTTP/2 and returns all responses. For a call it reads until the call has ended; otherwise until the server
// has read everything, which is the response "alive".
func sendFrames(address, text string, isCall bool) []string {
	c, err := dial("", address)
	if err != nil {
		return []string{"unreachable"}
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer c.Close()
	if !isCall {
		text += lastPing
	}
	writing.Go(func() {
		_, _ = io.WriteString(c, text) // the server may close the connection early
	})
	framer := http2.NewFramer(nil, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var responses []string
	add := func(response string) {
		if !slices.Contains(responses, response) {
			responses = append(responses, response)
		}
	}
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return ended(responses, err)
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if response := statusOf(f); response != "" {
				add(response)
			}
		case *http2.RSTStreamFrame:
			add("reset")
		case *http2.GoAwayFrame:
			return append(responses, "goaway")
		case *http2.PingFrame:
			if string(f.Data[:]) == "the last" {
				return append(responses, "alive")
			}
		}
		h := f.Header()
		last := h.Type == http2.FrameRSTStream || h.Type == http2.FrameHeaders && h.Flags.Has(http2.FlagHeadersEndStream)
		if isCall && last {
			return responses
		}
	}
}

// statusOf returns the gRPC status of a call, or the HTTP status if it is not 200.
func statusOf(f *http2.MetaHeadersFrame) (response string) {
	for _, field := range f.Fields {
		switch {
		case field.Name == ":status" && field.Value != "200":
			return field.Value
		case field.Name == "grpc-status":
			code, _ := strconv.Atoi(field.Value)
			response = codes.Code(code).String()
		}
	}
	return response
}

// frames returns inputs that are invalid for every gRPC server.
func frames() []hostile {
	text := func(name, want string, of func(r *rand.Rand) string) hostile {
		return hostile{name: name, want: want, do: func(r *rand.Rand, address string) []string {
			return sendFrames(address, greeting+of(r), false)
		}}
	}
	return []hostile{
		{name: "garbage", want: "none", do: func(r *rand.Rand, address string) []string {
			start := one(r, "", preface, preface[:r.IntN(24)]+"x", frame(frameSettings, 0, 0, ""))
			return sendFrames(address, start+noise(r, 3000), false)
		}},
		{name: "HTTP/1", want: "none", do: func(r *rand.Rand, address string) []string {
			return sendFrames(address, place{path: service + "Check"}.json("{}"), false)
		}},
		{name: "client disconnects", want: "none", do: func(r *rand.Rand, address string) []string {
			return leave(r, address, greeting+call(1, service+"Check", message(0, "")))
		}},
		{name: "no settings", want: "none", do: func(r *rand.Rand, address string) []string {
			return sendFrames(address, preface+one(r,
				ping, call(1, service+"Check", message(0, "")), frame(frameSettings, 0, 1, ""), frame(frameSettings, 0, 0, "12345"),
				frame(frameSettings, 0, 0, "\x00\x04\xff\xff\xff\xff")), false)
		}},
		text("large frames", "none", func(r *rand.Rand) string {
			kind := one(r, "\x00", "\x01", "\x04", "\x09", "\x55")[0]
			return frameOf(16<<10+1+r.IntN(1<<20), kind, 0, uint32(r.IntN(3)), noise(r, 40_000))
		}).times(200),
		text("HPACK", "none 400 405 415 reset alive", func(r *rand.Rand) string {
			return frame(frameHeaders, endHeaders|endStream, 1, one(r,
				"\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\x80", "\xc0", "\x00\x85\xff\xff\xff\xff\xff", "\x3f\xff\xff\xff\xff\x0f",
				noise(r, 200)))
		}),
		text("pings", "goaway none", func(*rand.Rand) string { return strings.Repeat(ping, 500) }).times(200),
		text("settings", "alive", func(r *rand.Rand) string {
			return strings.Repeat(frame(frameSettings, 0, 0,
				one(r, "", "\x00\x01\x00\x00\x00\x00", "\x00\x03\x00\x00\x00\x01")), 500)
		}).times(200),
		text("rapid resets", "alive reset OK none", func(r *rand.Rand) string {
			var b strings.Builder
			for i := range uint32(200) {
				b.WriteString(call(2*i+1, service+one(r, "Check", "CheckStream", "Peek"), message(0, "")))
				b.WriteString(frame(frameReset, 0, 2*i+1, "\x00\x00\x00\x08"))
			}
			return b.String()
		}).times(100),
		text("stream 0", "none", func(r *rand.Rand) string {
			return one(r, frame(frameData, 0, 0, "x"), begin(0, service+"Check"), frame(frameReset, 0, 0, "\x00\x00\x00\x08"),
				frame(frameContinuation, endHeaders, 0, ""), frame(framePriority, 0, 0, "12345"))
		}),
		text("streams", "none alive goaway reset", func(r *rand.Rand) string {
			return one(r,
				begin(2, service+"Check"), begin(5, service+"Peek")+begin(3, service+"Check"), frame(frameData, 0, 9, "x"),
				begin(1, service+"Check")+begin(1, service+"Check"), frame(framePush, endHeaders, 1, "1234"),
				frame(framePing, 0, 1, "12345678"), frame(framePing, 0, 0, "1"), frame(frameReset, 0, 1, "1"),
				frame(frameGOAWAY, 0, 0, "12345678"))
		}),
		text("windows", "none alive reset ResourceExhausted", func(r *rand.Rand) string {
			return one(r,
				strings.Repeat(frame(frameWindow, 0, 0, "\x7f\xff\xff\xff"), 3), frame(frameWindow, 0, 0, "\x00\x00\x00\x00"),
				begin(1, service+"CheckStream")+strings.Repeat(frame(frameWindow, 0, 1, "\x7f\xff\xff\xff"), 2),
				begin(1, service+"CheckStream")+strings.Repeat(frame(frameData, 0, 1, strings.Repeat("x", 16<<10)), 20))
		}).times(200),
		text("large headers", "none alive reset", func(r *rand.Rand) string {
			head := frame(frameHeaders, 0, 1, callFields(service+"Check"))
			more := frame(frameContinuation, 0, 1, fields("x", strings.Repeat("~", 12_000)))
			return head + strings.Repeat(more, 3+r.IntN(40)) + frame(frameContinuation, endHeaders, 1, "")
		}).times(200),
		text("unknown frames", "alive none", func(r *rand.Rand) string {
			return strings.Repeat(frame(byte(10+r.IntN(200)), byte(r.Uint32()), uint32(r.IntN(9)), noise(r, 200)), 100)
		}).times(200),
		text("abandoned", "alive", func(r *rand.Rand) string {
			var b strings.Builder
			for i := range uint32(20) {
				b.WriteString(begin(2*i+1, service+one(r, "Check", "CheckStream", "CheckBatch")))
				b.WriteString(frame(frameData, 0, 2*i+1, message(1000, noise(r, 900))))
			}
			return b.String()
		}).times(200),
		text("2,000 streams", "reset alive", func(*rand.Rand) string {
			var b strings.Builder
			for i := range uint32(2000) {
				b.WriteString(begin(2*i+1, service+"CheckStream"))
			}
			return b.String()
		}).times(10),
	}
}

// calls returns valid HTTP/2 requests that the server must reject as gRPC calls.
func calls() []hostile {
	text := func(name, want string, of func(r *rand.Rand) string) hostile {
		return hostile{name: name, want: want, do: func(r *rand.Rand, address string) []string {
			return sendFrames(address, greeting+of(r), true)
		}}
	}
	return []hostile{
		text("unknown methods", "Unimplemented", func(r *rand.Rand) string {
			return call(1, one(r, service+"Chek", "/x/y", "/", "//", service, "x", "/../../etc/passwd",
				"/"+strings.Repeat("a", 7000)), message(0, ""))
		}),
		text("invalid calls", "415 400 reset", func(r *rand.Rand) string {
			post := []string{":method", "POST", ":scheme", "http", ":path", service + "Check", "content-type"}
			return frame(frameHeaders, endHeaders|endStream, 1, one(r,
				fields(append(post, "application/json")...),
				fields(append(post, "application/grpc", "grpc-timeout", "1x")...),
				fields(append(post, "application/grpc", "connection", "close")...),
				fields(append(post, "application/grpc", "x-bin", "!")...),
				fields(append(post, "application/grpc", ":path", "/y")...),
				fields(append(post, "application/grpc", "X-Upper", "1")...),
				fields(":method", "GET", ":scheme", "http", ":path", "/metrics", "content-type", "application/grpc"),
				fields("content-type", "application/grpc")))
		}),
		text("large messages", "ResourceExhausted", func(r *rand.Rand) string {
			method := service + one(r, "Check", "CheckBatch", "CheckStream", "Reserve")
			return call(1, method, message(1<<20+1+r.IntN(1<<30), noise(r, 9000)))
		}),
		text("lengths", "Internal", func(r *rand.Rand) string {
			return call(1, service+one(r, "Check", "Peek"), one(r, message(900, "x"), message(1, ""), "\x00\x00", ""))
		}),
		text("compression", "Unimplemented Internal", func(r *rand.Rand) string {
			return begin(1, service+"Check", one(r, "x", "grpc-encoding"), one(r, "gzip", "bomb")) +
				frame(frameData, endStream, 1, "\x01"+message(9, "123456789")[1:])
		}),
		text("invalid messages", "Internal", func(r *rand.Rand) string {
			text := one(r, "\x0a\x05", "\x0a\xff\xff\xff\xff\x0f", strings.Repeat("\x0b", 5000),
				"\x0a\x06\x0a\x01a\x12\x01\xff", "\x1a\x02\xc3\x28", "\xff\xff\xff")
			return call(1, service+one(r, "Check", "Peek", "Refund"), message(len(text), text))
		}),
	}
}

// clients returns well-formed calls with invalid arguments.
func clients(conn *grpc.ClientConn) []hostile {
	c := checkv1.NewCheckServiceClient(conn)
	invoke := func(name, want string, do func(ctx context.Context, r *rand.Rand) error) hostile {
		return hostile{name: "client: " + name, want: want, do: func(r *rand.Rand, _ string) []string {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			return []string{status.Code(do(ctx, r)).String()}
		}}
	}
	return []hostile{
		invoke("unknown methods", "Unimplemented", func(ctx context.Context, r *rand.Rand) error {
			return conn.Invoke(ctx, "/x.y/"+strconv.Itoa(r.IntN(1000)), &wrapperspb.StringValue{Value: "x"},
				&wrapperspb.StringValue{})
		}),
		invoke("fields", "InvalidArgument NotFound PermissionDenied", func(ctx context.Context, r *rand.Rand) error {
			bad := []*checkv1.CheckRequest{
				{Cost: -1 - r.Int64()},
				{Cost: 1<<62 + r.Int64N(1<<61)},
				{Rule: strings.Repeat("r", 9000)},
				{Attributes: map[string]string{"": "x"}},
				{Attributes: map[string]string{}},
			}
			for i := range 129 {
				bad[4].Attributes[strconv.Itoa(i)] = ""
			}
			req := bad[r.IntN(len(bad))]
			switch r.IntN(7) {
			case 0:
				_, err := c.Refund(ctx, req)
				return err
			case 1:
				_, err := c.Check(ctx, &checkv1.CheckRequest{Rule: "unknown"})
				return err
			case 2:
				_, err := c.Commit(ctx, &checkv1.CommitRequest{Reservation: []byte(noise(r, 500))})
				return err
			case 3:
				_, err := c.Reserve(ctx, &checkv1.ReserveRequest{HoldUs: 1 << 60})
				return err
			case 4:
				_, err := c.CheckBatch(ctx, &checkv1.CheckBatchRequest{Requests: make([]*checkv1.CheckRequest, 1001)})
				return err
			}
			_, err := c.Check(ctx, req)
			return err
		}),
		invoke("large messages", "ResourceExhausted", func(ctx context.Context, _ *rand.Rand) error {
			_, err := c.Cancel(ctx, &checkv1.CancelRequest{Reservation: make([]byte, 2<<20)})
			return err
		}).times(100),
	}
}
