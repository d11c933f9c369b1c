//go:build linux

package attack

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// largest is of a message of gRPC and of a batch over HTTP; a request over HTTP may have 64 kB.
const (
	largest     = 1<<20 - 64
	largestBody = 64<<10 - 64
)

// gzipBomb is what a few hundred kilobytes become 256 MiB by, where they are decompressed.
const gzipBomb = "gzip bomb"

func bomb() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	zeros := make([]byte, 1<<20)
	for range 256 {
		_, _ = w.Write(zeros) // a Buffer takes everything
	}
	_ = w.Close()
	return b.Bytes()
}

// entrances returns all places where requests are decoded, and what to flood them with.
func entrances() map[string]entrance {
	all := map[string]entrance{}
	compressed := bomb()
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
			"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", false, field(1, []byte("d")), 2,
			[]protowire.Number{2},
			1, 32,
		},
	} {
		within := func(attributes []byte) []byte {
			for i := len(e.request) - 1; i >= 0; i-- {
				attributes = field(e.request[i], attributes)
			}
			return append(bytes.Clone(e.before), attributes...)
		}
		shapes := map[string][]byte{
			"empty items":        append(bytes.Clone(e.before), bytes.Repeat(field(e.item, nil), largest/2)...),
			"tiny attributes":    within(pairs(e.attribute, largest, largest)),
			"repeated attribute": within(bytes.Repeat(pair(e.attribute, "a", "b"), largest/8)),
			"huge value":         within(pair(e.attribute, "a", strings.Repeat("x", largest-100))),
			"unknown fields":     append(bytes.Clone(e.before), bytes.Repeat([]byte{15<<3 | 2, 0}, largest/2)...),
			"nested groups": append(bytes.Clone(e.before), append(bytes.Repeat([]byte{15<<3 | 3}, largest/2),
				bytes.Repeat([]byte{15<<3 | 4}, largest/2)...)...),
		}
		if e.request != nil {
			one := within(pairs(e.attribute, e.perAttribute, largest))[len(e.before):]
			shapes["full requests"] = append(bytes.Clone(e.before), bytes.Repeat(one, largest/len(one))...)
		}
		shapes[gzipBomb] = compressed
		all[name] = entrance{grpc: true, path: e.path, streams: e.streams, shapes: shapes}
	}
	for path, most := range map[string]int{"/v1/check": largestBody, "/v1/check/batch": largest, "/v1/commit": largestBody} {
		shapes := documents(most)
		shapes[gzipBomb] = compressed
		all["HTTP "+path] = entrance{path: path, shapes: shapes}
	}
	return all
}

// documents returns bodies of JSON.
func documents(most int) map[string][]byte {
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
		"tiny attributes":    []byte(`{"attributes":{` + strings.TrimSuffix(attributes.String(), ",") + `}}`),
		"repeated attribute": repeat(`{"attributes":{`, `"a":"b"`, `}}`),
		"repeated member":    repeat(`{`, `"attributes":{"a":"b"}`, `}`),
		"huge value":         []byte(`{"attributes":{"a":"` + strings.Repeat("x", most-30) + `"}}`),
		"unknown members":    []byte(`{` + strings.TrimSuffix(unknown.String(), ",") + `}`),
		"nested":             []byte(`{"attributes":` + strings.Repeat("[", most/2-10) + strings.Repeat("]", most/2-10) + `}`),
	}
}

func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// pair is one entry of a map of strings, or of a descriptor.
func pair(number protowire.Number, name, value string) []byte {
	var content []byte
	if name != "" {
		content = append(content, field(1, []byte(name))...)
	}
	if value != "" {
		content = append(content, field(2, []byte(value))...)
	}
	return field(number, content)
}

// pairs returns up to n with names of their own, of at most so many bytes.
func pairs(number protowire.Number, n, most int) []byte {
	var all []byte
	for i := range n {
		next := pair(number, fmt.Sprintf("%x", i), "")
		if len(all)+len(next) > most-100 {
			break
		}
		all = append(all, next...)
	}
	return all
}
