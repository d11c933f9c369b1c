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

// Each client has the limits of the rules, and is told of them.
func testLimits(w *world, g gateway) {
	address := g.run(w)
	ann, bob := newClient(w.t, address, "127.0.0.2"), newClient(w.t, address, "127.0.0.3")
	for left := 9; left >= 0; left-- {
		ann.passes("GET", fmt.Sprintf("/a%%20page?%d&q=%%2F", left), "pages-by-ip", 10, left)
	}
	for range 3 {
		ann.denied(g, "GET", "/", "pages-by-ip", 10)
	}
	for left := 4; left >= 0; left-- {
		ann.passes("POST", "/login", "login-by-ip", 5, left)
	}
	ann.denied(g, "POST", "/login", "login-by-ip", 5)
	bob.passes("GET", "/", "pages-by-ip", 10, 9)
	if n := w.app.reached(); n != 16 {
		w.t.Errorf("the application was reached %d times, not 16", n)
	}

	// What no rule is about passes as it is, whatever the application says.
	for _, status := range []int{200, 403, 429, 500, 502, 503} {
		path := fmt.Sprintf("/?%d", status)
		got := ann.send("PUT", path, "x")
		if got.status != status || got.counted() || got.body != "application: PUT "+path+" x" {
			w.t.Errorf("PUT %s: %d, %q", path, got.status, got.body)
		}
	}

	// An application that fails does not get the request again. HAProxy hangs up as well; with Envoy it is a 503.
	before := w.app.reached()
	if got, err := ann.try("PUT", "/?"+hangUp, ""); err == nil && got.status != 502 && got.status != 503 || w.app.reached() != before+1 {
		w.t.Errorf("an application that hangs up: %d, %v, reached %d times", got.status, err, w.app.reached()-before)
	}
}

// Envoy tells afterwards what a response has cost. It counts in any case, and who has overdrawn is denied.
func testAfterwards(w *world, g gateway) {
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
	for i, want := range []struct{ size, status, least, most int }{{600, 200, 1, 400}, {900, 200, 0, 0}, {1, 429, 0, 0}} {
		if got := c.send("PUT", "/", strings.Repeat("x", want.size)); got.status != want.status {
			w.t.Fatalf("request %d: %d, and not %d", i+1, got.status, want.status)
		}
		eventually(w.t, "the cost", func() bool {
			left := w.left("bytes")
			return left >= want.least && left <= want.most
		})
	}
}

const afterwards = `
  - id: bytes
    match: {descriptor.bytes: all}
    by: []
    limit: {rate: 1000/hour, align: clock}
    algorithm: fixed_window
    overdraw: true
`

// A client that makes up headers gains nothing, also where rules count by user.
func testLies(w *world, g gateway) {
	address := g.run(w)
	c := newClient(w.t, address, "127.0.0.2")
	for i := range 12 {
		lie := fmt.Sprintf("198.51.100.%d", i)
		c.headers = http.Header{}
		for name, value := range map[string]string{
			"X-Forwarded-For": lie, "Forwarded": "for=" + lie, "X-Real-Ip": lie, "X-User-Id": lie,
			"X-Forwarded-Method": "PUT", "X-Forwarded-Uri": "/other", "X-Forwarded-Host": lie,
			"X-Original-Method": "PUT", "X-Original-Uri": "/other",
		} {
			c.headers.Set(name, value)
		}
		if i < 10 {
			c.passes("GET", "/", "pages-by-ip", 10, 9-i)
		} else {
			c.denied(g, "GET", "/", "pages-by-ip", 10)
		}
	}
}

// Rules change under load, and no request suffers.
func testChangedRules(w *world, g gateway) {
	l, began := newLoad(newClient(w.t, g.run(w), "127.0.0.2")), time.Now()
	eventually(w.t, "a denial", func() bool { return len(l.since(began)) > passed(l.since(began)) })
	rules := filepath.Join(filepath.Dir(w.config), "rules.yaml")
	text, err := os.ReadFile(rules)
	if err != nil {
		w.t.Fatal(err)
	}
	writeFile(w.t, rules, strings.Replace(string(text), "10/minute", "20/minute", 1))
	eventually(w.t, "the new limit to be used up", func() bool {
		last := l.next(w.t)[0]
		return last.status == http.StatusTooManyRequests && strings.Contains(last.header.Get("RateLimit-Policy"), "q=20")
	})
	answers := l.end()
	for _, a := range answers {
		if !a.counted() || a.status != http.StatusOK && a.status != http.StatusTooManyRequests {
			w.t.Fatalf("%d, %v, %.200q", a.status, a.header, a.body)
		}
	}
	// 20 a minute is one in three seconds.
	admitted, most := passed(answers), 20+1+int(time.Since(began)/(3*time.Second))
	if admitted < 20 || admitted > most || w.app.reached() != admitted {
		w.t.Errorf("%d admitted, not 20 to %d; the application was reached %d times", admitted, most, w.app.reached())
	}
}

// Headgate is killed under load, and later hangs. Until it is back every request gets one of the statuses, soon.
func testAway(w *world, g gateway, statuses []int, edits ...string) {
	g.patience = nil
	address := g.run(w, edits...)
	c := newClient(w.t, address, "127.0.0.2")
	l := newLoad(c)
	full := func() bool {
		return !slices.ContainsFunc(l.next(w.t), func(a timed) bool { return a.status != 429 || !a.counted() })
	}
	eventually(w.t, "a limit that is used up", full)

	w.headgate.Kill()
	quickest := patience
	for _, a := range l.next(w.t) {
		if !slices.Contains(statuses, a.status) || a.counted() {
			w.t.Fatalf("without Headgate: %d, %v, %.200q", a.status, a.header, a.body)
		}
		quickest = min(quickest, a.took)
	}
	if quickest > 200*time.Millisecond {
		w.t.Errorf("without Headgate the quickest answer took %v: the gateway waits for what is not there", quickest)
	}
	body := "body"
	if slices.Contains(statuses, 200) {
		body = strings.Repeat("body ", 100_000) // which nobody has read when Headgate turns out to be away
	}
	post := newClient(w.t, address, "127.0.0.3").send("POST", "/login", body)
	if !slices.Contains(statuses, post.status) || post.status == 200 && post.body != "application: POST /login "+body {
		w.t.Errorf("without Headgate: POST /login: %d, %.100q", post.status, post.body)
	}

	w.start()
	eventually(w.t, "limits again", full)
	w.headgate.Pause()
	eventually(w.t, "answers without one that hangs", func() bool {
		a := l.next(w.t)[0]
		return slices.Contains(statuses, a.status) && !a.counted() && a.took < 2*time.Second
	})
	w.headgate.Resume()
	eventually(w.t, "limits after it hung", full)

	answers := l.end()
	admitted := passed(answers)
	if post.status == 200 {
		admitted++
	}
	if n := w.app.reached(); n != admitted {
		w.t.Errorf("%d admitted, but the application was reached %d times", admitted, n)
	}
	for _, a := range answers {
		if a.status != 200 && a.status != 429 && !slices.Contains(statuses, a.status) {
			w.t.Errorf("%d, %v, %.200q", a.status, a.header, a.body)
		}
	}
}

// A gateway that is not trusted is not believed, and Headgate's log says so, once.
func testNotTrusted(w *world, g gateway) {
	address := g.run(w)
	for _, ip := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.2"} {
		newClient(w.t, address, ip).send("GET", "/", "")
	}
	// All are one client, which is the gateway.
	newClient(w.t, address, "127.0.0.4").passes("GET", "/", "pages-by-ip", 10, 6)
	for _, warning := range []string{
		`"msg":"header of an untrusted peer ignored; if the peer is a proxy, add it to the trusted proxies","peer":"127.0.0.1"`,
		`"msg":"forward-auth was not told which request it is asked about`,
	} {
		if n := strings.Count(w.headgate.Output(), warning); n != 1 {
			w.t.Errorf("Headgate warned %d times, not once: %s", n, warning)
		}
	}
}

// Gateways of all kinds share limits.
func testShared(w *world) {
	var clients []*client
	for _, g := range gateways() {
		clients = append(clients, newClient(w.t, g.run(w), "127.0.0.2"))
	}
	for left := 9; left >= 0; left-- {
		clients[left%len(clients)].passes("GET", "/", "pages-by-ip", 10, left)
	}
	for i, g := range gateways() {
		clients[i].denied(g, "GET", "/", "pages-by-ip", 10)
	}
	if n := w.app.reached(); n != 10 {
		w.t.Errorf("the application was reached %d times, not 10", n)
	}
}
