package ruledoc

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// concurrencyRules has leases shorter than the requests of its tests.
const concurrencyRules = `
rules:
  - id: exports
    match: {path: /exports}
    by: [tenant]
    limit: {concurrent: 3, lease: 1s}
    limits: {rate: {rate: 5/hour, algorithm: fixed_window}}
    tiers: {pro: 4 concurrent}
    candidate: 2 concurrent
  - {id: sockets, match: {path: /sockets}, by: [user], limit: 5_000 concurrent}
  - {id: heavy, match: {path: /heavy}, by: [], limit: 10 concurrent, cost: {max: 20}}
  - {id: watched, match: {path: /watched}, by: [], limit: 1 concurrent, mode: shadow}
overrides:
  - {rule: exports, subject: {tenant: acme}, limit: 1 concurrent}
`

func TestRequestsInFlight(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]string{
		"ended before the next begins": `
      - {request: {path: /heavy}, repeat: 50, expect: {allowed: true, remaining: 9}}`,
		"until the end": `
      - {request: {path: /exports, tenant: a}, duration: 1h, repeat: 4, expect: {allowed: 3, rule: exports, remaining: 0, retry_after: unknown}}
      - {at: 59m59s, request: {path: /exports, tenant: a}, expect: {allowed: false}}
      - {request: {path: /exports, tenant: b}, expect: {allowed: true}}
      - {at: 1h, request: {path: /exports, tenant: a}, expect: {allowed: true, rule: exports, limit: rate, remaining: 4}}`,
		"denied by another limit": `
      - {request: {path: /exports, tenant: a}, repeat: 6, expect: {allowed: 5}}
      - {request: {path: /exports, tenant: a}, duration: 1h, repeat: 3, expect: {allowed: false, rule: exports, limit: rate}}
      - {at: 1h, request: {path: /exports, tenant: a}, duration: 1m, repeat: 4, expect: {allowed: 3}}`,
		"tier, override and candidate": `
      - {request: {path: /exports, tenant: a, tier: pro}, duration: 1h, repeat: 5, expect: {allowed: 4}}
      - {request: {path: /exports, tenant: b}, duration: 1h, repeat: 2, expect: {allowed: true, candidate: []}}
      - {request: {path: /exports, tenant: b}, duration: 1h, expect: {allowed: true, candidate: [exports]}}
      - {request: {path: /exports, tenant: acme, tier: pro}, duration: 1m, repeat: 2, expect: {allowed: 1, candidate: []}}
      - {at: 1m, request: {path: /exports, tenant: acme}, expect: {allowed: true, candidate: []}}`,
		"some end before others": `
      - {request: {path: /heavy}, duration: 5s, repeat: 10, every: 1s, expect: {allowed: true, remaining: 5}}
      - {at: 10s, request: {path: /heavy}, expect: {remaining: 5}}
      - {at: 13s, request: {path: /heavy}, expect: {remaining: 8}}
      - {at: 100h, request: {path: /heavy}, expect: {remaining: 9}}`,
		"cost": `
      - {request: {path: /heavy}, cost: 6, duration: 5s, expect: {allowed: true, remaining: 4}}
      - {request: {path: /heavy}, cost: 5, duration: 5s, expect: {allowed: false, retry_after: unknown}}
      - {request: {path: /heavy}, cost: 11, expect: {allowed: false, retry_after: never}}
      - {at: 5s, request: {path: /heavy}, cost: 10, expect: {allowed: true, remaining: 0}}`,
		"more than a counter can have holders": `
      - {request: {path: /sockets, user: ann}, duration: 1h, repeat: 6000, every: 1ms, expect: {allowed: 5000}}
      - {at: 1h2s, request: {path: /sockets, user: ann}, expect: {remaining: 2_000}}`,
		"shadow": `
      - {request: {path: /watched}, duration: 1h, repeat: 2, expect: {allowed: true, shadow: [watched]}}
      - {at: 1h, request: {path: /watched}, expect: {shadow: []}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "rules_test.yaml")
			write(t, filepath.Join(dir, "rules.yaml"), concurrencyRules)
			write(t, file, fmt.Sprintf("rules: [rules.yaml]\ntests:\n  - name: in flight\n    requests:%s\n", steps))
			Test(t, file)
		})
	}
}

func TestFailureOfConcurrencyLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "rules_test.yaml")
	write(t, filepath.Join(dir, "rules.yaml"), concurrencyRules)
	write(t, file, `
rules: [rules.yaml]
tests:
  - name: in flight
    requests:
      - {request: {path: /heavy}, duration: 5s, repeat: 11, expect: {allowed: true}}
`)
	report, err := RunTests(file)
	if err != nil {
		t.Fatal(err)
	}
	want := "heavy (10 concurrent): denies a cost of 1, 0 remaining, retry after unknown"
	if text := report.String(); !strings.Contains(text, want) || !strings.Contains(text, "duration 5s") {
		t.Errorf("%s\nwant %s", text, want)
	}
}
