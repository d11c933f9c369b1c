package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The clock of the tests. The server's clock, if it sends one, is an hour ahead.
var (
	now   = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	ahead = "Date: Sun, 15 Nov 2026 13:00:00 GMT"
)

func TestAdvice(t *testing.T) {
	t.Parallel()
	const (
		s          = time.Second
		none       = ""
		legacy     = "X-RateLimit-Reset"
		older      = "RateLimit-Reset"
		spent      = "X-RateLimit-Remaining: 0"
		olderSpent = "RateLimit-Remaining: 0"
	)
	type response struct {
		wait   time.Duration
		header string
		lines  []string
	}
	is := func(wait time.Duration, header string, lines ...string) response {
		return response{wait, header, lines}
	}
	epoch := func(after time.Duration) string { return strconv.FormatInt(now.Add(after).Unix(), 10) }
	tests := map[string]response{
		"nothing":                     is(0, none),
		"seconds":                     is(7*s, retryAfter, "Retry-After: 7"),
		"zero":                        is(0, retryAfter, "Retry-After: 0"),
		"spaces":                      is(7*s, retryAfter, "Retry-After:  7 "),
		"fraction":                    is(2*s, retryAfter, "Retry-After: 1.001"),
		"fraction of nothing":         is(s, retryAfter, "Retry-After: 1.000"),
		"several lines":               is(9*s, retryAfter, "Retry-After: 3", "Retry-After: 9", "Retry-After: soon"),
		"negative":                    is(0, none, "Retry-After: -7"),
		"signed":                      is(0, none, "Retry-After: +7"),
		"empty":                       is(0, none, "Retry-After:"),
		"point":                       is(0, none, "Retry-After: ."),
		"exponent":                    is(0, none, "Retry-After: 1e3"),
		"hexadecimal":                 is(0, none, "Retry-After: 0x10"),
		"other digits":                is(0, none, "Retry-After: ７"),
		"two numbers":                 is(0, none, "Retry-After: 7 8"),
		"words":                       is(0, none, "Retry-After: in a while"),
		"leading zeros":               is(7*s, retryAfter, "Retry-After: 0000000000000000000000007"),
		"huge":                        is(forever, retryAfter, "Retry-After: 9223372036"),
		"as nanoseconds too big":      is(forever, retryAfter, "Retry-After: 9223372037"),
		"maximum of 64 bits":          is(forever, retryAfter, "Retry-After: 9223372036854775807"),
		"maximum of 64 bits and more": is(forever, retryAfter, "Retry-After: 9223372036854775807.5"),
		"more than 64 bits":           is(forever, retryAfter, "Retry-After: 99999999999999999999999"),

		"date":                       is(30*s, retryAfter, "Retry-After: Sun, 15 Nov 2026 12:00:30 GMT"),
		"date of RFC 850":            is(30*s, retryAfter, "Retry-After: Sunday, 15-Nov-26 12:00:30 GMT"),
		"date of C":                  is(30*s, retryAfter, "Retry-After: Sun Nov 15 12:00:30 2026"),
		"date by the server":         is(30*s, retryAfter, "Retry-After: Sun, 15 Nov 2026 13:00:30 GMT", ahead),
		"seconds need no clock":      is(7*s, retryAfter, "Retry-After: 7", ahead),
		"unreadable server clock":    is(30*s, retryAfter, "Retry-After: Sun, 15 Nov 2026 12:00:30 GMT", "Date: today"),
		"past date":                  is(0, retryAfter, "Retry-After: Sun, 15 Nov 2026 11:00:00 GMT"),
		"date of no day":             is(0, none, "Retry-After: Sun, 31 Nov 2026 12:00:30 GMT"),
		"last date":                  is(forever, retryAfter, "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"),
		"date and seconds":           is(30*s, retryAfter, "Retry-After: 5", "Retry-After: Sun, 15 Nov 2026 12:00:30 GMT"),
		"Retry-After has precedence": is(5*s, retryAfter, "Retry-After: 5", `RateLimit: "a";r=0;t=60`),
		"unless it is unreadable":    is(time.Minute, rateLimit, "Retry-After: -5", `RateLimit: "a";r=0;t=60`),
		"policy":                     is(30*s, rateLimit, `RateLimit: "a";r=0;t=30`),
		"policies":                   is(40*s, rateLimit, `RateLimit: "a";r=0;t=30, "b";r=5;t=900,"c";r=0;t=40`),
		"policy, next draft":         is(30*s, rateLimit, `RateLimit: "a";a=0;w=30`),
		"policies, both drafts":      is(40*s, rateLimit, `RateLimit: "a";r=0;t=30, "b";a=5;w=900, "c";a=0;w=40;pk=:YTs9LA==:`),
		"policy, unit and key":       is(30*s, rateLimit, `RateLimit: "a";qu="content-bytes";r=0;t=30;pk=:cjswO3Q7MQ==:`),
		"policies on lines":          is(40*s, rateLimit, `RateLimit: "a";r=0;t=30`, `RateLimit: "b";r=0;t=40`),
		"policy with a key":          is(30*s, rateLimit, `RateLimit: "a";pk=:YTs9LA==:;r=0; t=30`),
		"policy with something":      is(0, none, `RateLimit: "a";r=1;t=30`),
		"policy without time":        is(0, none, `RateLimit: "a";r=0`),
		"policy without rest":        is(0, none, `RateLimit: "a";t=30`),
		"policy, negative time":      is(0, none, `RateLimit: "a";r=0;t=-30`),
		"policy, negative rest":      is(30*s, rateLimit, `RateLimit: "a";r=-3;t=30`),
		"policy, huge time":          is(forever, rateLimit, `RateLimit: "a";r=0;t=999999999999999`),
		"policy, last value":         is(30*s, rateLimit, `RateLimit: "a";r=0;t=9;t=30`),
		"policy, invalid last":       is(0, none, `RateLimit: "a";r=0;t=9;t=x`),
		"policy, capitals":           is(0, none, `RateLimit: "a";R=0;T=30`),
		"name like parameters":       is(30*s, rateLimit, `RateLimit: "a;r=0;t=60,b";r=0;t=30`),
		"name with a quote":          is(30*s, rateLimit, `RateLimit: "a\";r=0;t=60,\\";r=0;t=30`),
		"name not ended":             is(0, none, `RateLimit: "a;r=0;t=60`),
		"name is a parameter":        is(0, none, `RateLimit: r=0;t=60`),
		"commas and semicolons":      is(0, none, `RateLimit: ,;,;;=,"`),
		"policy goes first":          is(9*s, rateLimit, `RateLimit: "a";r=0;t=9`, olderSpent, "RateLimit-Reset: 30"),
		"policy that has some":       is(30*s, older, `RateLimit: "a";r=4;t=9`, olderSpent, "RateLimit-Reset: 30"),
		"legacy time":                is(30*s, legacy, spent, "X-RateLimit-Reset: "+epoch(30*s)),
		"legacy time, server's":      is(time.Minute, legacy, spent, "X-RateLimit-Reset: "+epoch(time.Hour+time.Minute), ahead),
		"legacy time, past":          is(0, legacy, spent, "X-RateLimit-Reset: "+epoch(-time.Minute)),
		"legacy seconds":             is(30*s, legacy, spent, "X-RateLimit-Reset: 30"),
		"legacy milliseconds":        is(forever, legacy, spent, "X-RateLimit-Reset: "+epoch(time.Second)+"000"),
		"legacy, most of 64 bits":    is(forever, legacy, spent, "X-RateLimit-Reset: 9223372036854775807"),
		"legacy, more than 64 bit":   is(forever, legacy, spent, "X-RateLimit-Reset: 99999999999999999999"),
		"legacy, some left":          is(0, none, "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 30"),
		"legacy, below none left":    is(30*s, legacy, "X-RateLimit-Remaining: -1", "X-RateLimit-Reset: 30"),
		"legacy, not said":           is(0, none, "X-RateLimit-Reset: 30"),
		"legacy, words":              is(0, none, "X-RateLimit-Remaining: none", "X-RateLimit-Reset: 30"),
		"legacy, other family":       is(0, none, spent, "RateLimit-Reset: 30"),
		"older draft":                is(30*s, older, olderSpent, "RateLimit-Reset: 30"),
		"older draft, as a time":     is(30*s, older, olderSpent, "RateLimit-Reset: "+epoch(30*s)),
		"both families":              is(30*s, older, spent, "X-RateLimit-Reset: 9", olderSpent, "RateLimit-Reset: 30"),
		"both families, turned":      is(30*s, legacy, spent, "X-RateLimit-Reset: 30", olderSpent, "RateLimit-Reset: 9"),
		"both, one readable":         is(0, legacy, spent, "X-RateLimit-Reset: 0", olderSpent, "RateLimit-Reset: x"),
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := adviceOf(header(test.lines...), now); got.wait != test.wait || got.header != test.header {
				t.Errorf("wait %v by %q, want %v by %q", got.wait, got.header, test.wait, test.header)
			}
		})
	}
}

func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimPrefix(value, " "))
	}
	return h
}

func FuzzAdvice(f *testing.F) {
	f.Add("7", "", `"a";r=0;t=30, "b\"";r=0`, "0", "1794744030")
	f.Add("Sun, 15 Nov 2026 12:00:30 GMT", "Sun, 15 Nov 2026 13:00:00 GMT", `"a`, "-1", "99999999999999999999")
	f.Add("-1", "Sunday, 15-Nov-26 12:00:30 GMT", `"a;";r=0;;t=1.5,,`, "0.0", "1.5")
	f.Add(".", "Sun Nov 15 12:00:30 2026", `;r=0;t=1\`, "-", "-")
	f.Fuzz(func(t *testing.T, after, date, policies, remaining, reset string) {
		h := header("Retry-After:"+after, "Date:"+date, "RateLimit:"+policies,
			"X-RateLimit-Remaining:"+remaining, "X-RateLimit-Reset:"+reset)
		got := adviceOf(h, now)
		if got.wait < 0 || got.wait > forever || got.header == "" && got.wait != 0 {
			t.Fatalf("%+v", got)
		}
		if n, err := strconv.ParseUint(after, 10, 32); err == nil {
			if want := time.Duration(n) * time.Second; got.wait != min(want, forever) || got.header != retryAfter {
				t.Fatalf("%+v, want %v", got, want)
			}
		}
		// An empty line must not change the result.
		h.Add(got.header, "")
		if more := adviceOf(h, now); got.header != "" && more != got {
			t.Fatalf("%+v, with an additional empty line %+v", got, more)
		}
		if joined := strings.Join(splitAll(policies), ","); joined != policies {
			t.Fatalf("%q became %q", policies, joined)
		}
	})
}

func splitAll(text string) []string {
	var parts []string
	for part := range split(text, ',') {
		parts = append(parts, part)
	}
	return parts
}
