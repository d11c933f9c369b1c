//go:build linux

package attack

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// largestMessage is of a message of gRPC and of a batch over HTTP; a request over HTTP may have 64 kB.
const (
	largestMessage = 1<<20 - 64
	largestBody    = 64<<10 - 64
)

// tinyAttributes are as many as fit.
const tinyAttributes = "tiny attributes"

// gzipBomb is what a few hundred kilobytes become 256 MiB by, where they are decompressed.
const gzipBomb = "gzip bomb"

func gzipped() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range 256 {
		_, _ = w.Write(zeros) // a Buffer takes everything
	}
	_ = w.Close()
	return b.Bytes()
}

// floodEntrances returns all places where requests are decoded, and what to flood them with.
func floodEntrances() map[string]floodEntrance {
	all := map[string]floodEntrance{}
	compressed := gzipped()
	for name, e := range map[string]struct {
		path    string
		streams bool
		// before is a part that must be there; item is the field of a repeated message, request those between it and the
		// attributes' field.
		before       []byte
		item         protowire.Number
		request      []protowire.Number
		attribute    protowire.Number
		perAttribute int
	}{
		"CheckStream": {"/headgate.check.v1.CheckService/CheckStream", true, nil, 1, []protowire.Number{1, 2}, 1, 128},
		"CheckBatch":  {"/headgate.check.v1.CheckService/CheckBatch", false, nil, 1, []protowire.Number{1}, 1, 128},
		"Check":       {"/headgate.check.v1.CheckService/Check", false, nil, 1, nil, 1, 128},
		"Reserve":     {"/headgate.check.v1.CheckService/Reserve", false, nil, 1, []protowire.Number{1}, 1, 128},
		"Commit":      {"/headgate.check.v1.CheckService/Commit", false, nil, 3, nil, 3, 128},
		"RLS": {
			"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", false, protoField(1, []byte("d")), 2,
			[]protowire.Number{2},
			1, 32,
		},
	} {
		within := func(attributes []byte) []byte {
			for i := len(e.request) - 1; i >= 0; i-- {
				attributes = protoField(e.request[i], attributes)
			}
			return append(bytes.Clone(e.before), attributes...)
		}
		shapes := map[string][]byte{
			"empty items":        append(bytes.Clone(e.before), bytes.Repeat(protoField(e.item, nil), largestMessage/2)...),
			tinyAttributes:       within(protoPairs(e.attribute, largestMessage, largestMessage)),
			"repeated attribute": within(bytes.Repeat(protoPair(e.attribute, "a", "b"), largestMessage/8)),
			"huge value":         within(protoPair(e.attribute, "a", strings.Repeat("x", largestMessage-100))),
			"unknown fields":     append(bytes.Clone(e.before), bytes.Repeat([]byte{15<<3 | 2, 0}, largestMessage/2)...),
			"nested groups": append(bytes.Clone(e.before), append(bytes.Repeat([]byte{15<<3 | 3}, largestMessage/2),
				bytes.Repeat([]byte{15<<3 | 4}, largestMessage/2)...)...),
		}
		if e.request != nil {
			one := within(protoPairs(e.attribute, e.perAttribute, largestMessage))[len(e.before):]
			shapes["full requests"] = append(bytes.Clone(e.before), bytes.Repeat(one, min(1_000, largestMessage/len(one)))...)
		}
		shapes[gzipBomb] = compressed
		all[name] = floodEntrance{
			grpc: true, path: e.path, streams: e.streams, many: e.streams || name == "CheckBatch",
			lone: len(e.request) == 0 || name == "Reserve", shapes: shapes,
		}
	}
	for path, most := range map[string]int{"/v1/check": largestBody, "/v1/check/batch": largestMessage, "/v1/commit": largestBody} {
		shapes := floodDocuments(most)
		shapes[gzipBomb] = compressed
		all["HTTP "+path] = floodEntrance{path: path, lone: most == largestBody, shapes: shapes}
	}
	return all
}

// floodDocuments returns bodies of JSON.
func floodDocuments(most int) map[string][]byte {
	var attributes, unknown strings.Builder
	for i := 0; attributes.Len() < most-40; i++ {
		fmt.Fprintf(&attributes, `"%x":"",`, i)
	}
	for i := 0; unknown.Len() < most-10; i++ {
		fmt.Fprintf(&unknown, `"%x":0,`, i)
	}
	repeat := func(begin, item, end string) []byte {
		return []byte(begin + strings.Repeat(item+",", (most-len(begin)-len(end))/(len(item)+1)-1) + item + end)
	}
	first, _, _ := strings.Cut(attributes.String(), `,"80"`) // 128 of them
	one := `{"attributes":{` + first + `}}`
	return map[string][]byte{
		"empty items":        repeat(`{"requests":[`, `{}`, `]}`),
		"numbers":            repeat(`{"requests":[`, `0`, `]}`),
		"full requests":      repeat(`{"requests":[`, one, `]}`),
		tinyAttributes:       []byte(`{"attributes":{` + strings.TrimSuffix(attributes.String(), ",") + `}}`),
		"repeated attribute": repeat(`{"attributes":{`, `"a":"b"`, `}}`),
		"repeated member":    repeat(`{`, `"attributes":{"a":"b"}`, `}`),
		"huge value":         []byte(`{"attributes":{"a":"` + strings.Repeat("x", most-30) + `"}}`),
		"unknown members":    []byte(`{` + strings.TrimSuffix(unknown.String(), ",") + `}`),
		"nested":             []byte(`{"attributes":` + strings.Repeat("[", most/2-10) + strings.Repeat("]", most/2-10) + `}`),
	}
}

func protoField(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// protoPair is one entry of a map of strings, or of a descriptor.
func protoPair(number protowire.Number, name, value string) []byte {
	var content []byte
	if name != "" {
		content = append(content, protoField(1, []byte(name))...)
	}
	if value != "" {
		content = append(content, protoField(2, []byte(value))...)
	}
	return protoField(number, content)
}

// protoPairs returns up to n with names of their own, of at most so many bytes.
func protoPairs(number protowire.Number, n, most int) []byte {
	var all []byte
	for i := range n {
		next := protoPair(number, fmt.Sprintf("%x", i), "")
		if len(all)+len(next) > most-100 {
			break
		}
		all = append(all, next...)
	}
	return all
}
