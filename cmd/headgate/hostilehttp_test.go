//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// dial connects from a local address, or from any if from is "". Closing the connection resets it, because otherwise the machine would
// run out of ports.
func dial(from, to string) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: patience}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := d.Dial("tcp", to)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	_ = c.(*net.TCPConn).SetLinger(0)
	return c.(*net.TCPConn), nil
}

// ended returns the responses of a connection that ended with err. "stuck" marks a timeout; a reset is not a response.
func ended(responses []string, err error) []string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return append(responses, "stuck")
	}
	return responses
}

// sendText sends text over HTTP/1, closes the sending side and returns all responses.
func sendText(from, address, text string) []string {
	c, err := dial(from, address)
	if err != nil {
		return []string{"unreachable"}
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer c.Close()
	writing.Go(func() {
		_, _ = io.WriteString(c, text) // the server may close the connection early
		_ = c.CloseWrite()
	})
	var responses []string
	for in := bufio.NewReader(c); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return ended(responses, err)
		}
		_, err = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusContinue {
			responses = append(responses, strconv.Itoa(res.StatusCode))
		}
		if err != nil || res.Close {
			return ended(responses, err)
		}
	}
}

// leave sends a part of text and disconnects.
func leave(r *rand.Rand, address, text string) []string {
	c, err := dial("", address)
	if err != nil {
		return []string{"unreachable"}
	}
	_, _ = io.WriteString(c, text[:r.IntN(len(text))])
	_ = c.SetLinger(r.IntN(2) - 1)
	c.Close()
	return nil
}

// slow sends one byte at a time, and returns the time until the server disconnected.
func slow(address, text string) (time.Duration, error) {
	c, err := dial("", address)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	began := time.Now()
	var writing sync.WaitGroup
	defer writing.Wait()
	closed := make(chan struct{})
	defer close(closed)
	writing.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			if _, err := c.Write([]byte{text[min(i, len(text)-1)]}); err != nil {
				return
			}
			select {
			case <-closed:
				return
			case <-tick.C:
			}
		}
	})
	if _, err = io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		return time.Since(began), err
	}
	return time.Since(began), nil
}

// place is an HTTP endpoint that accepts POST requests.
type place struct {
	path, header string
	// tokens are used in turn, so that none of them is rate limited.
	tokens []string
	// read reports whether the endpoint reads bodies. Otherwise the response to all valid requests is 404.
	read bool
	// bare is the response to another path without the header. prior is the response to the HTTP/2 preface.
	bare, prior string
}

func (p place) headers() string {
	if len(p.tokens) == 0 {
		return p.header
	}
	return "Authorization: Bearer " + p.tokens[rand.IntN(len(p.tokens))] + "\r\n"
}

func (p place) rejection() string {
	if p.read {
		return "400"
	}
	return "404"
}

// request returns a request with the given header lines and body.
func (p place) request(lines, body string) string {
	return "POST " + p.path + " HTTP/1.1\r\nHost: x\r\n" + lines + p.headers() + "\r\n" + body
}

func (p place) json(body string) string {
	return p.request("Connection: close\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n", body)
}

// one returns one of the texts.
func one(r *rand.Rand, texts ...string) string { return texts[r.IntN(len(texts))] }

// noise returns 1 to maxLen random bytes.
func noise(r *rand.Rand, maxLen int) string {
	b := make([]byte, 1+r.IntN(maxLen))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// wire returns inputs that are invalid for every HTTP server.
func (p place) wire() []hostile {
	text := func(name, want string, of func(r *rand.Rand) string) hostile {
		return hostile{name: name, want: want, do: func(r *rand.Rand, address string) []string {
			return sendText("", address, of(r))
		}}
	}
	line := func(line string) string { return line + "\r\nHost: x\r\n" + p.headers() + "Connection: close\r\n\r\n" }
	return []hostile{
		text("garbage", "400 none", func(r *rand.Rand) string { return noise(r, 3000) }),
		text("half a request", "400 none 404", func(r *rand.Rand) string {
			whole := p.json(`{"attributes": {"user": "half"}}`)
			return whole[:r.IntN(len(whole)-1)]
		}),
		{name: "client disconnects", want: "none", do: func(r *rand.Rand, address string) []string {
			return leave(r, address, p.json(`{"attributes": {"user": "gone"}}`))
		}},
		text("large header", "431 none", func(r *rand.Rand) string {
			return p.request("X-A: "+strings.Repeat("a", 40_000+r.IntN(100_000))+"\r\n", "")
		}).times(100),
		text("many headers", "431 none", func(r *rand.Rand) string {
			return p.request(strings.Repeat(emptyHeader(r)+"\r\n", 10_000), "")
		}).times(100),
		text("endless line", "431 none", func(r *rand.Rand) string {
			return one(r, "POST /", "POST / HTTP/1.1\r\nX", "POST / HTTP/1.1\r\nX: ") + strings.Repeat("a", 64<<10)
		}).times(100),
		text("methods", "405 400 404 401", func(r *rand.Rand) string {
			return line(one(r, "DELETE ", "get ", "BREW ", "G@T ", " ", "CONNECT ", "TRACE ", strings.Repeat("A", 5000)+" ") +
				one(r, p.path, "/healthz") + " HTTP/1.1")
		}),
		text("versions", "505 400", func(r *rand.Rand) string {
			return line("POST " + p.path +
				one(r, " HTTP/0.9", " HTTP/3.0", " HTTP/9.9", " HTTP/1", " HTTP/11.1", " http/1.1", "", " \x00"))
		}),
		text("chunks", p.rejection()+" 400", func(r *rand.Rand) string {
			return p.request("Connection: close\r\nTransfer-Encoding: chunked\r\n", one(r,
				"zz\r\n{}\r\n", "-1\r\n{}\r\n", "fffffffffffffffff\r\n{}", "7fffffffffffffff\r\n{", "2\r\n{}{}{}\r\n0\r\n\r\n",
				"0x2\r\n{}\r\n0\r\n\r\n", "\r\n\r\n", "2\n{}", strings.Repeat("1\r\n{\r\n", 2000),
				"2;"+strings.Repeat("x", 9000)+"\r\n{}"))
		}),
		text("lengths", "400 "+p.rejection(), func(r *rand.Rand) string {
			return p.request("Content-Length: "+one(r,
				"-1", "+2", "2, 3", "99999999999999999999", "9223372036854775807", "1e3", "0x2", "2\r\nContent-Length: 3", "", "1",
				"900", "\u0662")+"\r\n", "{}garbage")
		}),
		text("smuggling", "400 501 "+p.bare, func(r *rand.Rand) string {
			return p.request(one(r,
				"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: xchunked\r\n",
				"Transfer-Encoding : chunked\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
				"Transfer-Encoding:\x0bchunked\r\n", " Content-Length: 5\r\n", "Host: y\r\n", "X\r\n", "X: \x00\r\n",
				"X: a\rContent-Length: 3\r\n", "Content-Length: 3\n\n",
			), "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
		}),
		text("2 MB", strings.ReplaceAll(p.rejection(), "400", "413")+" none", func(*rand.Rand) string {
			return p.json(strings.Repeat(" ", 2<<20))
		}).times(100),
		text("paths", "404 400 301 307 401 403 405", func(r *rand.Rand) string {
			return line(one(r, "GET ", "POST ") + one(r,
				"/../../../../etc/passwd", "/v1/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/check/../../metrics/..",
				"/"+strings.Repeat("../", 5000), "/"+strings.Repeat("a/", 8000), "/?"+strings.Repeat("a&", 9000), "//x/y", "/%00",
				"/%zz", "*", "x", "/\x7f", "http://other/v1/nothing", "/.git/config", "/debug/pprof/heap",
			) + " HTTP/1.1")
		}),
		text("HTTP/2", p.prior, func(r *rand.Rand) string { return preface + frame(frameSettings, 0, 0, noise(r, 90)) }),
		text("TLS", "400 none", func(r *rand.Rand) string {
			return "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise(r, 500)
		}),
		text("pipelined", p.rejection(), func(r *rand.Rand) string {
			return strings.Repeat(p.request("Content-Length: 1\r\n", "?"), 1+r.IntN(10)) + p.json("?")
		}),
		text("expectations", "417 "+p.rejection(), func(r *rand.Rand) string {
			return p.request("Connection: close\r\nContent-Length: 5\r\n"+
				"Expect: "+one(r, "100-continue", "nonsense", "200-ok")+"\r\n", "?")
		}),
		text("upgrades", p.rejection(), func(r *rand.Rand) string {
			return p.request("Connection: Upgrade, HTTP2-Settings, close\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nUpgrade: "+
				one(r, "h2c", "websocket", "TLS/1.3")+"\r\nContent-Length: 1\r\n", "?")
		}),
	}
}

// emptyHeader returns a header line without a value.
func emptyHeader(r *rand.Rand) string { return "X-" + strconv.Itoa(r.IntN(1000)) + ": " }

// bodies returns valid HTTP requests whose bodies the server must reject.
func (p place) bodies() []hostile {
	body := func(name, want string, of func(r *rand.Rand) string) hostile {
		return hostile{name: name, want: want, do: func(r *rand.Rand, address string) []string {
			return sendText("", address, p.json(of(r)))
		}}
	}
	return []hostile{
		body("deep JSON", "400", func(r *rand.Rand) string {
			return one(r, "", `{"attributes":`, `{"cost":`) + strings.Repeat(one(r, "[", `{"a":`), 10_000)
		}).times(100),
		body("many members", "400", func(r *rand.Rand) string {
			return "{" + strings.Repeat(fmt.Sprintf(`"%c":0,`, 'a'+r.IntN(26)), 8000) + `"z":0}`
		}).times(100),
		body("not UTF-8", "400", func(r *rand.Rand) string {
			return one(r,
				"{\"attributes\": {\"user\": \"\xff\"}}", "{\"attributes\": {\"\xc3\": \"\"}}", "{\"\xed\xa0\x80\": 1}")
		}),
		body("numbers", "400", func(r *rand.Rand) string {
			return `{"attributes": {}, "cost": ` + one(r,
				"1e999999", "-1", "1000000001", "9223372036854775808", "1.5", strings.Repeat("9", 60_000), "NaN", `"1"`, "true",
				"[]", "-0.0000001", "0x10") + "}"
		}),
		body("unknown members", "400", func(r *rand.Rand) string {
			return `{"` + one(r, "admin", "__proto__", "attribute", "costs", strings.Repeat("x", 60_000)) + `": 1}`
		}).times(100),
		body("attributes", "400 413", func(r *rand.Rand) string {
			var b strings.Builder
			for i := range 129 + r.IntN(10_000) {
				fmt.Fprintf(&b, `"%d":"",`, i)
			}
			return `{"attributes": {` + b.String() + `"": ""}}`
		}).times(100),
		body("wrong types", "400", func(r *rand.Rand) string {
			return one(r, "", "null", "[]", `"x"`, "0", `{} {}`, `{"cost": {}}`, `{"attributes": []}`,
				`{"attributes": {"user": 1}}`, `{"attributes": {"user": {}}}`, `{"attributes": {"": "x"}}`)
		}),
		body("noise", "400", func(r *rand.Rand) string { return noise(r, 2000) }),
	}
}

// misuses returns invalid calls of the check API.
func misuses() []hostile {
	call := func(name, want string, of func(r *rand.Rand) string) hostile {
		return hostile{name: name, want: want, do: func(r *rand.Rand, address string) []string {
			return sendText("", address, of(r))
		}}
	}
	post := func(path, body string) string { return place{path: "/v1/" + path}.json(body) }
	return []hostile{
		call("reservations", "400", func(r *rand.Rand) string {
			return post(one(r, "commit", "cancel"), `{"reservation": `+
				one(r, `""`, `"!"`, `"AAAA"`, "7", `"`+strings.Repeat("A", 50_000)+`"`)+"}")
		}),
		call("refunds", "403", func(*rand.Rand) string { return post("refund", `{"attributes": {"user": "thief"}}`) }),
		call("unknown rules", "404", func(r *rand.Rand) string {
			return post(one(r, "check", "peek", "reserve"), fmt.Sprintf(`{"rule": "r%d"}`, r.Uint32()))
		}),
		call("holds", "400", func(r *rand.Rand) string {
			return post("reserve", `{"attributes": {}, "hold": `+one(r, "-1", "1e300", "3601", "1e999", `"1"`)+"}")
		}),
		call("batches", "400 413", func(r *rand.Rand) string {
			return post("check/batch", `{"requests": [`+
				strings.Repeat(one(r, "{},", "[],", `{"cost":1},`), 1001+r.IntN(90_000))+`{}]}`)
		}).times(100),
		call("types", "415", func(r *rand.Rand) string {
			return place{path: "/v1/check"}.request("Connection: close\r\nContent-Length: 2\r\n"+one(r,
				"Content-Type: text/plain\r\n", "Content-Type: ;;;\r\n", "Content-Encoding: gzip\r\n",
				"Content-Type: application/json; charset\r\n"), "{}")
		}),
		call("forward-auth", "400", func(r *rand.Rand) string {
			return "GET /v1/authorize HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + one(r,
				"X-Forwarded-Uri: /a\r\nX-Original-Uri: /a\r\n", "X-Forwarded-Uri: /a\r\nX-Forwarded-Uri: /b\r\n",
				"X-Original-Method: GET\r\nX-Forwarded-Method: PUT\r\n") + "\r\n"
		}),
	}
}

// guesses returns calls with invalid tokens.
func guesses() []hostile {
	return []hostile{{name: "wrong tokens", want: "401 429", do: func(r *rand.Rand, address string) []string {
		header := "Authorization: " + one(r, "", "Bearer ", "Bearer hgt_"+strconv.FormatUint(r.Uint64(), 36), "Basic YTph",
			"Bearer \xff\xfe",
			"Bearer "+strings.Repeat("x", 30_000), "bearer x y", "hgt_x") + "\r\n"
		return sendText(guessingFrom, address, place{path: one(r, "/v1/explain", "/", "/x"), header: header}.json("{}"))
	}}}
}
