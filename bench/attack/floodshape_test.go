//go:build linux

package attack

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// largestMessage is the size of a gRPC message and of a batch over HTTP; largestBody that of a single request over HTTP.
const (
	largestMessage = 1<<20 - 64
	largestBody    = 64<<10 - 64
)

// tinyAttributes is the shape with as many attributes as fit.
const tinyAttributes = "tiny attributes"

// gzipBomb is the shape of a few hundred kilobytes that decompress to 256 MiB.
const gzipBomb = "gzip bomb"

func gzipped() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range 256 {
		_, _ = w.Write(zeros) // a Buffer never fails
	}
	_ = w.Close()
	return b.Bytes()
}

// floodTargets returns all endpoints that decode requests, and the bodies to send.
func floodTargets() map[string]floodTarget {
	all := map[string]floodTarget{}
	compressed := gzipped()
	for name, e := range map[string]struct {
		path    string
		streams bool
		// before is a required prefix; item is the field of a repeated message, request are the fields between it and the
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
		all[name] = floodTarget{
			grpc: true, path: e.path, streams: e.streams, concurrent: e.streams || name == "CheckBatch",
			single: len(e.request) == 0 || name == "Reserve", shapes: shapes,
		}
	}
	for path, maxSize := range map[string]int{"/v1/check": largestBody, "/v1/check/batch": largestMessage, "/v1/commit": largestBody} {
		shapes := floodDocuments(maxSize)
		shapes[gzipBomb] = compressed
		all["HTTP "+path] = floodTarget{path: path, single: maxSize == largestBody, shapes: shapes}
	}
	return all
}

// floodDocuments returns JSON bodies of at most maxSize bytes.
func floodDocuments(maxSize int) map[string][]byte {
	var attributes, unknown strings.Builder
	for i := 0; attributes.Len() < maxSize-40; i++ {
		fmt.Fprintf(&attributes, `"%x":"",`, i)
	}
	for i := 0; unknown.Len() < maxSize-10; i++ {
		fmt.Fprintf(&unknown, `"%x":0,`, i)
	}
	repeat := func(begin, item, end string) []byte {
		return []byte(begin + strings.Repeat(item+",", (maxSize-len(begin)-len(end))/(len(item)+1)-1) + item + end)
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
		"huge value":         []byte(`{"attributes":{"a":"` + strings.Repeat("x", maxSize-30) + `"}}`),
		"unknown members":    []byte(`{` + strings.TrimSuffix(unknown.String(), ",") + `}`),
		"nested":             []byte(`{"attributes":` + strings.Repeat("[", maxSize/2-10) + strings.Repeat("]", maxSize/2-10) + `}`),
	}
}

func protoField(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// protoPair returns one entry of a map of strings, or of a descriptor.
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

// protoPairs returns up to n pairs with different names, of at most maxSize bytes.
func protoPairs(number protowire.Number, n, maxSize int) []byte {
	var all []byte
	for i := range n {
		next := protoPair(number, fmt.Sprintf("%x", i), "")
		if len(all)+len(next) > maxSize-100 {
			break
		}
		all = append(all, next...)
	}
	return all
}
