package streamlimit_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/streamlimit"
)

const excess = "too many messages: messages allows 2/minute; retry in 30s"

// TestOnExcess tests what happens to the third message of a connection or a user that may send two per minute.
func TestOnExcess(t *testing.T) {
	t.Parallel()
	const own = "too many messages on this connection"
	byRule, byConnection := []headgate.Rule{ofMessages(headgate.PerMinute(2))}, headgate.PerMinute(2)
	for name, test := range map[string]struct {
		options streamlimit.Options
		rules   []headgate.Rule
		action  streamlimit.Action
		code    int
		reason  string
		waits   time.Duration
	}{
		"drop":                       {streamlimit.Options{OnExcess: streamlimit.Drop}, byRule, streamlimit.Drop, 0, "", 0},
		"close":                      {streamlimit.Options{OnExcess: streamlimit.Close}, byRule, streamlimit.Close, 1008, excess, 0},
		"too long a delay":           {streamlimit.Options{}, byRule, streamlimit.Close, 1008, excess, 0},
		"delay":                      {streamlimit.Options{MaxDelay: time.Minute}, byRule, streamlimit.Pass, 0, "", 30 * time.Second},
		"no delay":                   {streamlimit.Options{MaxDelay: -time.Minute}, byRule, streamlimit.Close, 1008, excess, 0},
		"connection: drop":           {streamlimit.Options{Connection: byConnection, OnExcess: streamlimit.Drop}, nil, streamlimit.Drop, 0, "", 0},
		"connection: close":          {streamlimit.Options{Connection: byConnection, OnExcess: streamlimit.Close}, nil, streamlimit.Close, 1008, own, 0},
		"connection: too long":       {streamlimit.Options{Connection: byConnection}, nil, streamlimit.Close, 1008, own, 0},
		"connection: no delay":       {streamlimit.Options{Connection: byConnection, MaxDelay: -1}, nil, streamlimit.Close, 1008, own, 0},
		"connection: delay":          {streamlimit.Options{Connection: byConnection, MaxDelay: 30 * time.Second}, nil, streamlimit.Pass, 0, "", 30 * time.Second},
		"connection: just too short": {streamlimit.Options{Connection: byConnection, MaxDelay: 30*time.Second - 1}, nil, streamlimit.Close, 1008, own, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				gate := newLimits(t, newLimiter(t, inMemory(), test.rules...), test.options).Open(ada)
				if n := passed(t, gate, 2); n != 2 {
					t.Fatalf("%d messages passed, want 2", n)
				}
				start := time.Now()
				v := gate.Message(t.Context(), 100)
				expect(t, "third", v, test.action, test.code, test.reason)
				if waited := time.Since(start); waited < test.waits || waited > test.waits+test.waits/50 {
					t.Errorf("waited %s, want %s", waited, test.waits)
				}
				if want := 30 * time.Second; test.action != streamlimit.Pass && v.RetryAfter != want {
					t.Errorf("retry after %s, want %s", v.RetryAfter, want)
				}
				if byRules := test.rules != nil && test.action != streamlimit.Pass; (v.Decision != nil) != byRules {
					t.Errorf("decision %+v", v.Decision)
				}
			})
		})
	}
}

// TestNeverFits tests that a message that costs more than a limit's capacity is not delayed for ever.
func TestNeverFits(t *testing.T) {
	t.Parallel()
	for _, a := range []headgate.Algorithm{
		headgate.TokenBucket, headgate.LeakyBucket, headgate.FixedWindow, headgate.SlidingWindow, headgate.SlidingLog,
	} {
		limit := headgate.Limit{Algorithm: a, Count: 10, Window: time.Second}
		own := newLimits(t, nil, streamlimit.Options{Connection: limit}).Open(nil)
		for _, cost := range []int64{11, headgate.MaxCost, headgate.MaxCost + 1, 1<<63 - 1} {
			v := own.MessageWithCost(t.Context(), 1, cost)
			expect(t, a.String(), v, streamlimit.Close, 1008, "message exceeds the limit of a connection")
			if v.RetryAfter != headgate.Never {
				t.Errorf("%s: retry after %s", a, v.RetryAfter)
			}
		}
		rule := ofMessages(limit)
		rule.Cost = headgate.Cost{From: "descriptor.bytes"}
		gate := newLimits(t, newLimiter(t, inMemory(), rule), streamlimit.Options{}).Open(ada)
		v := gate.Message(t.Context(), 11)
		if v.Action != streamlimit.Close || v.Code != 1008 || !strings.Contains(v.Reason, "never allow a message of cost 11") {
			t.Errorf("%s: %+v", a, v)
		}
		if v := gate.Message(t.Context(), 10); v.Action != streamlimit.Pass {
			t.Errorf("%s: 10 bytes: %+v", a, v)
		}
	}
}

// TestBytes tests rules that count bytes. An empty message is not free.
func TestBytes(t *testing.T) {
	t.Parallel()
	bytes := ofMessages(headgate.PerHour(100))
	bytes.Cost = headgate.Cost{From: "descriptor.bytes"}
	limits := newLimits(t, newLimiter(t, inMemory(), bytes), streamlimit.Options{OnExcess: streamlimit.Drop})
	gate := limits.Open(ada)
	for i, size := range []int{60, 30, 0, 0, 8} {
		if v := gate.Message(t.Context(), size); v.Action != streamlimit.Pass {
			t.Errorf("message %d: %+v", i, v)
		}
	}
	for _, size := range []int{0, 1} {
		if v := gate.Message(t.Context(), size); v.Action != streamlimit.Drop {
			t.Errorf("%d bytes after 100: %+v", size, v)
		}
	}
	if v := limits.Open(headgate.Attributes{"user": "bob"}).MessageWithCost(t.Context(), 20, 6); v.Action != streamlimit.Drop {
		t.Errorf("6 × 20 bytes: %+v", v)
	}
	if v := limits.Open(ada).MessageWithCost(t.Context(), 1<<30, 0); v.Action != streamlimit.Pass {
		t.Errorf("cost 0: %+v", v)
	}
}

// TestUnknownSize tests that a message of unknown size costs what the rule says, not the size of the previous message.
func TestUnknownSize(t *testing.T) {
	t.Parallel()
	rule := ofMessages(headgate.PerHour(100))
	rule.Cost = headgate.Cost{From: "descriptor.bytes", Default: 20}
	gate := newLimits(t, newLimiter(t, inMemory(), rule), streamlimit.Options{OnExcess: streamlimit.Drop}).Open(ada)
	for i, test := range []struct {
		bytes int
		want  streamlimit.Action
	}{{60, streamlimit.Pass}, {-1, streamlimit.Pass}, {-1, streamlimit.Pass}, {-1, streamlimit.Drop}, {0, streamlimit.Drop}} {
		if v := gate.Message(t.Context(), test.bytes); v.Action != test.want {
			t.Errorf("message %d: %+v", i, v)
		}
	}
}

// TestEmptyMessages tests that messages without a byte count.
func TestEmptyMessages(t *testing.T) {
	t.Parallel()
	gate := newLimits(t, nil, streamlimit.Options{Connection: headgate.PerHour(3), OnExcess: streamlimit.Drop}).Open(nil)
	count := 0
	for range 10 {
		if gate.Message(t.Context(), 0).Action == streamlimit.Pass {
			count++
		}
	}
	if count != 3 {
		t.Errorf("%d of 10 empty messages passed, want 3", count)
	}
}

// TestScope tests which connections share a limit.
func TestScope(t *testing.T) {
	t.Parallel()
	starts := headgate.Rule{
		ID: "starts", By: []string{"user"}, Limit: headgate.PerHour(1),
		Match: headgate.Match{Attributes: map[string]headgate.Pattern{"descriptor.message": headgate.IsAbsent()}},
	}
	limits := newLimits(t, newLimiter(t, inMemory(), ofMessages(headgate.PerHour(10)), starts),
		streamlimit.Options{Connection: headgate.PerHour(7), OnExcess: streamlimit.Drop})
	sent := headgate.Attributes{"user": "ada", "descriptor.message": "sent"}
	for i, test := range []struct {
		attributes headgate.Attributes
		want       int
	}{
		{ada, 7},                                // by the connection
		{ada, 3},                                // by the rule
		{headgate.Attributes{"user": "bob"}, 7}, // another user
		{sent, 7},                               // not a received message
	} {
		if n := passed(t, limits.Open(test.attributes), 20); n != test.want {
			t.Errorf("connection %d: %d messages passed, want %d", i, n, test.want)
		}
	}
	if len(sent) != 2 || len(ada) != 2 {
		t.Errorf("the caller's attributes were changed: %v, %v", sent, ada)
	}
}

// TestContext tests that a delayed message does not outlast its connection.
func TestContext(t *testing.T) {
	t.Parallel()
	for _, rules := range [][]headgate.Rule{nil, {ofMessages(headgate.PerSecond(1))}} {
		synctest.Test(t, func(t *testing.T) {
			o := streamlimit.Options{Connection: headgate.PerSecond(1)}
			if rules != nil {
				o.Connection = headgate.Limit{}
			}
			gate := newLimits(t, newLimiter(t, inMemory(), rules...), o).Open(ada)
			passed(t, gate, 1)
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
			defer cancel()
			expect(t, "cut off", gate.Message(ctx, 1), streamlimit.Close, 1001, "connection is closing")
			if waited := time.Since(start); waited != 400*time.Millisecond {
				t.Errorf("waited %s", waited)
			}
			if v := gate.Message(t.Context(), 1); v.Action != streamlimit.Pass || time.Since(start) > 1020*time.Millisecond {
				t.Errorf("the next message: %+v after %s", v, time.Since(start))
			}
		})
	}
}

// TestStoreFailure tests that a rule's OnStoreFailure decides, and that a delayed message survives a short failure of the store.
func TestStoreFailure(t *testing.T) {
	t.Parallel()
	const unavailable = "rate limit unavailable: messages cannot be checked at the moment"
	for name, test := range map[string]struct {
		on      streamlimit.Action
		failure headgate.OnStoreFailure
		broken  time.Duration
		action  streamlimit.Action
		code    int
		reason  string
		calls   int
	}{
		"allow":            {streamlimit.Delay, headgate.FailAllow, time.Hour, streamlimit.Pass, 0, "", 1},
		"close":            {streamlimit.Close, headgate.FailDeny, time.Hour, streamlimit.Close, 1013, unavailable, 1},
		"drop":             {streamlimit.Drop, headgate.FailDeny, time.Hour, streamlimit.Drop, 0, "", 1},
		"delay, recovered": {streamlimit.Delay, headgate.FailDeny, 2500 * time.Millisecond, streamlimit.Pass, 0, "", 4},
		"delay, too long":  {streamlimit.Delay, headgate.FailDeny, time.Hour, streamlimit.Close, 1013, unavailable, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rule := ofMessages(headgate.PerMinute(2))
				rule.OnStoreFailure = test.failure
				store := &brokenStore{Store: inMemory(), repaired: time.Now().Add(test.broken)}
				gate := newLimits(t, newLimiter(t, store, rule), streamlimit.Options{OnExcess: test.on}).Open(ada)
				expect(t, "message", gate.Message(t.Context(), 1), test.action, test.code, test.reason)
				if store.calls != test.calls {
					t.Errorf("%d calls of the store, want %d", store.calls, test.calls)
				}
			})
		})
	}
}

// TestSetRules tests that rules change for open connections, with their attributes.
func TestSetRules(t *testing.T) {
	t.Parallel()
	limiter := newLimiter(t, inMemory(), ofMessages(headgate.PerHour(1)))
	limits := newLimits(t, limiter, streamlimit.Options{OnExcess: streamlimit.Drop})
	var resolved [][]string
	gate := limits.OpenFunc(func(names ...string) headgate.Attributes {
		resolved = append(resolved, names)
		return headgate.Attributes{"user": "ada", "tenant": "acme"}
	})
	set := func(rules ...headgate.Rule) *headgate.RuleSet {
		compiled, err := headgate.Compile(rules...)
		if err != nil {
			t.Fatal(err)
		}
		return compiled
	}
	tenants := ofMessages(headgate.PerHour(2))
	tenants.ID, tenants.By = "tenants", []string{"tenant"}
	shadow := ofMessages(headgate.PerHour(1))
	shadow.Mode = headgate.Shadow
	other := ofMessages(headgate.PerHour(1))
	other.Match.Path = "/other"
	for i, step := range []struct {
		rules *headgate.RuleSet
		want  int
	}{
		{limiter.Rules(), 1},
		{set(ofMessages(headgate.PerHour(4))), 3}, // the used unit stays used
		{set(tenants), 2},
		{set(other), 5},
		{set(tenants), 0},
		{set(shadow), 5},
		{set(tenants).WithMode(headgate.Off), 5},
		{set(tenants), 0},
	} {
		limiter.SetRules(step.rules)
		if n := passed(t, gate, 5); n != step.want {
			t.Errorf("step %d: %d messages passed, want %d", i, n, step.want)
		}
	}
	if len(resolved) > 7 || len(resolved) < 4 {
		t.Errorf("attributes were resolved %d times: %v", len(resolved), resolved)
	}
}

// countingChecker counts the checks.
type countingChecker struct {
	*headgate.Limiter
	checks int
}

func (c *countingChecker) Check(ctx context.Context, req headgate.Request) (headgate.Decision, error) {
	c.checks++
	return c.Limiter.Check(ctx, req)
}

// TestUnmatched tests that messages are not checked again if no rule can match them, and only then.
func TestUnmatched(t *testing.T) {
	t.Parallel()
	elsewhere := ofMessages(headgate.PerHour(1))
	elsewhere.Match.Path = "/elsewhere"
	large := elsewhere
	large.When = headgate.Condition{
		Text: "large", Attributes: []string{"descriptor.bytes"},
		Holds: func(a headgate.Attributes) bool { return len(a["descriptor.bytes"]) > 3 },
	}
	unknown := elsewhere
	unknown.When = headgate.Condition{Text: "unknown", Holds: func(headgate.Attributes) bool { return false }}
	exempt := ofMessages(headgate.PerHour(1))
	for name, test := range map[string]struct {
		rule headgate.Rule
		want int
	}{"elsewhere": {elsewhere, 1}, "depends on the size": {large, 10}, "unknown condition": {unknown, 10}, "exempt": {exempt, 10}} {
		c := &countingChecker{Limiter: newLimiter(t, inMemory(), elsewhere)}
		if name == "exempt" {
			err := c.Exceptions().Exempt(headgate.Exemption{Rule: "messages", Attribute: "user", Value: "ada"})
			if err != nil {
				t.Fatal(err)
			}
		}
		gate := newLimits(t, c, streamlimit.Options{OnExcess: streamlimit.Drop}).Open(ada)
		passed(t, gate, 2)
		rules, err := headgate.Compile(test.rule)
		if err != nil {
			t.Fatal(err)
		}
		c.SetRules(rules)
		c.checks = 0
		if n := passed(t, gate, 10); n != 10 || c.checks != test.want {
			t.Errorf("%s: %d of 10 messages passed after %d checks, want 10 after %d", name, n, c.checks, test.want)
		}
	}
}

// TestReason tests that reasons fit into a close frame and name no hidden rule.
func TestReason(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"m", strings.Repeat("m", 60), strings.Repeat("m", 100), strings.Repeat("m", 128)} {
		for _, expose := range []headgate.Expose{headgate.ExposeAlways, headgate.ExposeNever} {
			rule := ofMessages(headgate.PerHour(1))
			rule.ID, rule.Expose = id, expose
			limiter := newLimiter(t, inMemory(), rule)
			gate := newLimits(t, limiter, streamlimit.Options{OnExcess: streamlimit.Close}).Open(ada)
			passed(t, gate, 1)
			v := gate.Message(t.Context(), 1)
			named := strings.Contains(v.Reason, ": "+id)
			if v.Code != 1008 || len(v.Reason) > 123 || !utf8.ValidString(v.Reason) || !strings.HasPrefix(v.Reason, "too many messages") {
				t.Errorf("%d, %q", v.Code, v.Reason)
			}
			if want := expose == headgate.ExposeAlways && len(id) <= 100; named != want {
				t.Errorf("%q names the rule: %t, want %t", v.Reason, named, want)
			}
		}
	}
}

// TestCloseFor tests the code for a browser whose connection is accepted and closed.
func TestCloseFor(t *testing.T) {
	t.Parallel()
	sockets := headgate.Rule{ID: "sockets", By: []string{"user"}, Limit: headgate.Concurrent(1)}
	upgrades := headgate.Rule{ID: "upgrades", By: []string{"user"}, Limit: headgate.PerMinute(1)}
	for name, test := range map[string]struct {
		rule   headgate.Rule
		code   int
		reason string
	}{
		"concurrency": {sockets, 1013, "too many connections: sockets allows 1 concurrent connection; retry in "},
		"rate":        {upgrades, 1008, "too many connections: upgrades allows 1/minute; retry in "},
	} {
		limiter := newLimiter(t, inMemory(), test.rule)
		for i := range 2 {
			d, err := limiter.Begin(t.Context(), headgate.Request{Attributes: ada})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Done(headgate.Outcome{}) })
			v := streamlimit.CloseFor(&d)
			if i == 0 {
				expect(t, name, v, streamlimit.Pass, 0, "")
			} else if v.Action != streamlimit.Close || v.Code != test.code || !strings.HasPrefix(v.Reason, test.reason) {
				t.Errorf("%s: %+v", name, v)
			}
		}
	}
}

// TestMissing tests that a message without a required attribute closes the connection instead of waiting for it.
func TestMissing(t *testing.T) {
	t.Parallel()
	rule := ofMessages(headgate.PerHour(1))
	rule.OnMissing = headgate.DenyMissing
	gate := newLimits(t, newLimiter(t, inMemory(), rule), streamlimit.Options{}).Open(nil)
	expect(t, "no user", gate.Message(t.Context(), 1), streamlimit.Close, 1008, "too many messages: messages denies messages without user")
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	limiter := newLimiter(t, inMemory())
	for want, test := range map[string]struct {
		checker streamlimit.Checker
		options streamlimit.Options
	}{
		"neither a checker nor a limit": {nil, streamlimit.Options{}},
		"a concurrency limit":           {limiter, streamlimit.Options{Connection: headgate.Concurrent(1)}},
		"connection: count -1":          {limiter, streamlimit.Options{Connection: headgate.PerMinute(-1)}},
		"on excess 4: must be Delay":    {limiter, streamlimit.Options{OnExcess: 4}},
		"burst -1: must be 1 to":        {nil, streamlimit.Options{Connection: headgate.Limit{Count: 1, Window: time.Second, Burst: -1}}},
	} {
		if _, err := streamlimit.New(test.checker, test.options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
