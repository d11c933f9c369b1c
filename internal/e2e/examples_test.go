package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// testLimits tests that each client gets the limits of the rules, and their headers.
func testLimits(w *world, g gateway) {
	address := g.run(w)
	ann, bob := newClient(w.t, address, "127.0.0.2"), newClient(w.t, address, "127.0.0.3")
	for remaining := 9; remaining >= 0; remaining-- {
		ann.expectAllowed("GET", fmt.Sprintf("/a%%20page?%d&q=%%2F", remaining), "pages-by-ip", 10, remaining)
	}
	for range 3 {
		ann.expectDenied(g, "GET", "/", "pages-by-ip", 10)
	}
	for remaining := 4; remaining >= 0; remaining-- {
		ann.expectAllowed("POST", "/login", "login-by-ip", 5, remaining)
	}
	ann.expectDenied(g, "POST", "/login", "login-by-ip", 5)
	bob.expectAllowed("GET", "/", "pages-by-ip", 10, 9)
	if n := w.app.reached(); n != 16 {
		w.t.Errorf("the application got %d requests, want 16", n)
	}

	// A request that no rule matches reaches the application, and its response is not changed.
	for _, status := range []int{200, 403, 429, 500, 502, 503} {
		path := fmt.Sprintf("/?%d", status)
		got := ann.send("PUT", path, "x")
		if got.status != status || got.counted() || got.body != "application: PUT "+path+" x" {
			w.t.Errorf("PUT %s: %d, %q", path, got.status, got.body)
		}
	}

	// A failing application does not get the request again. HAProxy closes the connection; Envoy sends a 503.
	before := w.app.reached()
	if got, err := ann.try("PUT", "/?"+hangUp, ""); err == nil && got.status != 502 && got.status != 503 || w.app.reached() != before+1 {
		w.t.Errorf("an application that closes the connection: %d, %v, %d requests", got.status, err, w.app.reached()-before)
	}
}

// testCostAfterResponse tests that Envoy can report the cost of a response after it was sent. The cost is always
// charged, and an overdrawn limit denies.
func testCostAfterResponse(w *world, g gateway) {
	const actions = `- request_headers: {header_name: ":method", descriptor_key: method}`
	const more = actions + `
                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              rate_limits:
                                - actions: [{generic_key: {descriptor_key: bytes, descriptor_value: all}}]
                                  hits_addend: {number: 0}
                                - actions: [{generic_key: {descriptor_key: bytes, descriptor_value: all}}]
                                  hits_addend: {format: "%BYTES_SENT%"}
                                  apply_on_stream_done: true`
	c := newClient(w.t, g.run(w, actions, more), "127.0.0.2")
	for i, want := range []struct{ size, status, lowest, highest int }{{600, 200, 1, 400}, {900, 200, 0, 0}, {1, 429, 0, 0}} {
		if got := c.send("PUT", "/", strings.Repeat("x", want.size)); got.status != want.status {
			w.t.Fatalf("request %d: %d, want %d", i+1, got.status, want.status)
		}
		eventually(w.t, "the cost", func() bool {
			remaining := w.remaining("bytes")
			return remaining >= want.lowest && remaining <= want.highest
		})
	}
}

const bytesRule = `
  - id: bytes
    match: {descriptor.bytes: all}
    by: []
    limit: {rate: 1000/hour, align: clock}
    algorithm: fixed_window
    overdraw: true
`

// testForgedHeaders tests that a client gains nothing by forged headers, even if rules count by user.
func testForgedHeaders(w *world, g gateway) {
	address := g.run(w)
	c := newClient(w.t, address, "127.0.0.2")
	for i := range 12 {
		forged := fmt.Sprintf("198.51.100.%d", i)
		c.headers = http.Header{}
		for name, value := range map[string]string{
			"X-Forwarded-For": forged, "Forwarded": "for=" + forged, "X-Real-Ip": forged, "X-User-Id": forged,
			"X-Forwarded-Method": "PUT", "X-Forwarded-Uri": "/other", "X-Forwarded-Host": forged,
			"X-Original-Method": "PUT", "X-Original-Uri": "/other",
		} {
			c.headers.Set(name, value)
		}
		if i < 10 {
			c.expectAllowed("GET", "/", "pages-by-ip", 10, 9-i)
		} else {
			c.expectDenied(g, "GET", "/", "pages-by-ip", 10)
		}
	}
}

// testChangedRules changes rules under load. No request may fail.
func testChangedRules(w *world, g gateway) {
	l, began := newLoad(newClient(w.t, g.run(w), "127.0.0.2")), time.Now()
	eventually(w.t, "a denial", func() bool { return len(l.since(began)) > allowed(l.since(began)) })
	rules := filepath.Join(filepath.Dir(w.config), "rules.yaml")
	text, err := os.ReadFile(rules)
	if err != nil {
		w.t.Fatal(err)
	}
	writeFile(w.t, rules, strings.Replace(string(text), "10/minute", "20/minute", 1))
	eventually(w.t, "the new limit to be exhausted", func() bool {
		last := l.next(w.t)[0]
		return last.status == http.StatusTooManyRequests && strings.Contains(last.header.Get("RateLimit-Policy"), "q=20")
	})
	results := l.end()
	for _, a := range results {
		if !a.counted() || a.status != http.StatusOK && a.status != http.StatusTooManyRequests {
			w.t.Fatalf("%d, %v, %.200q", a.status, a.header, a.body)
		}
	}
	// 20 per minute is one per three seconds.
	admitted, highest := allowed(results), 20+1+int(time.Since(began)/(3*time.Second))
	if admitted < 20 || admitted > highest || w.app.reached() != admitted {
		w.t.Errorf("%d allowed, want 20 to %d; the application got %d requests", admitted, highest, w.app.reached())
	}
}

// testUnavailable kills Headgate under load, and pauses it later. Until it recovers, every request gets one of the statuses quickly.
func testUnavailable(w *world, g gateway, statuses []int, edits ...string) {
	g.longTimeout = nil
	address := g.run(w, edits...)
	c := newClient(w.t, address, "127.0.0.2")
	l := newLoad(c)
	full := func() bool {
		return !slices.ContainsFunc(l.next(w.t), func(a timed) bool { return a.status != 429 || !a.counted() })
	}
	eventually(w.t, "an exhausted limit", full)

	w.headgate.Kill()
	fastest := timeout
	for _, a := range l.next(w.t) {
		if !slices.Contains(statuses, a.status) || a.counted() {
			w.t.Fatalf("without Headgate: %d, %v, %.200q", a.status, a.header, a.body)
		}
		fastest = min(fastest, a.elapsed)
	}
	if fastest > 200*time.Millisecond {
		w.t.Errorf("without Headgate the fastest response took %v: the gateway waits for Headgate", fastest)
	}
	body := "body"
	if slices.Contains(statuses, 200) {
		body = strings.Repeat("body ", 100_000) // not yet read when the gateway finds Headgate unavailable
	}
	post := newClient(w.t, address, "127.0.0.3").send("POST", "/login", body)
	if !slices.Contains(statuses, post.status) || post.status == 200 && post.body != "application: POST /login "+body {
		w.t.Errorf("without Headgate: POST /login: %d, %.100q", post.status, post.body)
	}

	w.start()
	eventually(w.t, "limits after the restart", full)
	w.headgate.Pause()
	eventually(w.t, "responses while Headgate hangs", func() bool {
		a := l.next(w.t)[0]
		return slices.Contains(statuses, a.status) && !a.counted() && a.elapsed < 2*time.Second
	})
	w.headgate.Resume()
	eventually(w.t, "limits after Headgate resumed", full)

	results := l.end()
	admitted := allowed(results)
	if post.status == 200 {
		admitted++
	}
	if n := w.app.reached(); n != admitted {
		w.t.Errorf("%d allowed, but the application got %d requests", admitted, n)
	}
	for _, a := range results {
		if a.status != 200 && a.status != 429 && !slices.Contains(statuses, a.status) {
			w.t.Errorf("%d, %v, %.200q", a.status, a.header, a.body)
		}
	}
}

// testNotTrusted tests that headers of an untrusted gateway are ignored, and that Headgate logs it once.
func testNotTrusted(w *world, g gateway) {
	address := g.run(w)
	for _, ip := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.2"} {
		newClient(w.t, address, ip).send("GET", "/", "")
	}
	// All clients count as one, the gateway.
	newClient(w.t, address, "127.0.0.4").expectAllowed("GET", "/", "pages-by-ip", 10, 6)
	for _, warning := range []string{
		`"msg":"header of an untrusted peer ignored; if the peer is a proxy, add it to the trusted proxies","peer":"127.0.0.1"`,
		`"msg":"forward-auth request without the original URI`,
	} {
		if n := strings.Count(w.headgate.Output(), warning); n != 1 {
			w.t.Errorf("Headgate warned %d times, want 1: %s", n, warning)
		}
	}
}

// testShared tests that gateways of all kinds share limits.
func testShared(w *world) {
	var clients []*client
	for _, g := range gateways() {
		clients = append(clients, newClient(w.t, g.run(w), "127.0.0.2"))
	}
	for remaining := 9; remaining >= 0; remaining-- {
		clients[remaining%len(clients)].expectAllowed("GET", "/", "pages-by-ip", 10, remaining)
	}
	for i, g := range gateways() {
		clients[i].expectDenied(g, "GET", "/", "pages-by-ip", 10)
	}
	if n := w.app.reached(); n != 10 {
		w.t.Errorf("the application got %d requests, want 10", n)
	}
}
