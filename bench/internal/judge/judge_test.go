package judge

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const second = 1_000_000

// begin is the start of synthetic histories: a multiple of every window of whole seconds.
const begin = 1_700_000_000 * second

// check returns the record of a request that the store decided at a time.
func check(subject string, at, cost int64, allowed bool, retry int64) Record {
	return Record{
		Op: OpCheck, Subject: subject, Sent: at - 100, Received: at + 100, Store: at, Path: "store", Cost: cost, Allowed: allowed,
		RetryAfter: retry,
	}
}

// steady returns a correct history: requests at a fixed interval, decided by the judge's own counter.
func steady(limit Limit, pace, length int64) (records []Record) {
	c := limit.newCounter()
	for at := int64(begin); at < begin+length; at += pace {
		wait := c.wait(at, 1)
		if wait == 0 {
			c.add(at, 1)
		}
		records = append(records, check("s", at, 1, wait == 0, wait))
	}
	return records
}

// verdict judges one check. Records use the first limit unless they name another.
func verdict(c Check, records []Record, limits ...Limit) Verdict {
	return Judge(Header{Nodes: 4, Limits: limits, Checks: []Check{c}}, records)
}

// expectPass expects a verdict without findings.
func expectPass(t *testing.T, v Verdict) {
	t.Helper()
	if len(v.Findings) > 0 {
		t.Errorf("findings: %q", v.Findings)
	}
}

// expectFinding expects a finding that contains text.
func expectFinding(t *testing.T, v Verdict, text string) {
	t.Helper()
	if !strings.Contains(strings.Join(v.Findings, "\n"), text) {
		t.Errorf("no finding contains %q: %q", text, v.Findings)
	}
}

var allLimits = []Limit{
	{Algorithm: TokenBucket, Count: 50, Window: second},
	{Algorithm: TokenBucket, Count: 50, Window: second, Burst: 7},
	{Algorithm: FixedWindow, Count: 30, Window: second},
	{Algorithm: FixedWindow, Count: 30, Window: second, Clock: true},
	{Algorithm: SlidingWindow, Count: 40, Window: second},
	{Algorithm: SlidingLog, Count: 25, Window: second},
}

func TestCeiling(t *testing.T) {
	for _, limit := range allLimits {
		t.Run(limit.String(), func(t *testing.T) {
			for _, pace := range []int64{3_000, 20_000, 70_000} {
				expectPass(t, verdict(Check{Kind: KindCeiling}, steady(limit, pace, 5*second), limit))
			}
			records := steady(limit, 3_000, 5*second)
			for i := range records {
				if !records[i].Allowed {
					records[i].Allowed = true // one more than the limit
					break
				}
			}
			expectFinding(t, verdict(Check{Kind: KindCeiling}, records, limit), "exceeded by")
		})
	}
}

// TestCeilingUncertain: an admission that may be in either of two windows counts in neither.
func TestCeilingUncertain(t *testing.T) {
	limit := Limit{Algorithm: FixedWindow, Count: 1, Window: second, Clock: true}
	lease := Record{Op: OpCheck, Subject: "s", Path: "lease", Allowed: true, Cost: 1}
	a, b := lease, lease
	a.Sent, a.Received = begin+1, begin+2
	b.Sent, b.Received = begin+second-1, begin+second
	expectPass(t, verdict(Check{Kind: KindCeiling}, []Record{a, b}, limit))
	b.Received = begin + second - 1
	expectFinding(t, verdict(Check{Kind: KindCeiling}, []Record{a, b}, limit), "exceeded by 1.000")
}

func TestCeilingAllowance(t *testing.T) {
	limit := Limit{Algorithm: TokenBucket, Count: 100, Window: 100 * second}
	var records []Record
	for i := range int64(104) {
		records = append(records, check("s", begin+i, 1, true, 0))
	}
	expectPass(t, verdict(Check{Kind: KindCeiling, Allowance: 0.05}, records, limit))
	expectFinding(t, verdict(Check{Kind: KindCeiling, Allowance: 0.03}, records, limit), "at most 3")
}

// TestCeilingLocal: admissions by local fallback shares come on top of the limit, up to a fraction of it.
func TestCeilingLocal(t *testing.T) {
	limit := Limit{Algorithm: FixedWindow, Count: 10, Window: second, Clock: true}
	var records []Record
	for i := range int64(13) {
		r := check("s", begin+i, 1, true, 0)
		if i >= 10 {
			r.Path = "local"
		}
		r.Sent, r.Received = begin+i, begin+i
		records = append(records, r)
	}
	expectFinding(t, verdict(Check{Kind: KindCeiling}, records, limit), "exceeded by 3")
	expectPass(t, verdict(Check{Kind: KindCeiling, Local: 0.3}, records, limit))
	expectFinding(t, verdict(Check{Kind: KindCeiling, Local: 0.2}, records, limit), "3 admitted by local shares")
	records[0].Path, records[12].Path = "local", "store"
	records = append(records, check("s", begin+20, 1, true, 0))
	expectFinding(t, verdict(Check{Kind: KindCeiling, Local: 0.3}, records, limit), "exceeded by 1")
}

func TestUse(t *testing.T) {
	for _, limit := range allLimits {
		records := steady(limit, 3_000, 5*second)
		expectPass(t, verdict(Check{Kind: KindUse, Least: 0.99}, records, limit))
		for i := range records {
			records[i].Allowed = records[i].Allowed && i%20 != 0
		}
		expectFinding(t, verdict(Check{Kind: KindUse, Least: 0.99}, records, limit), "that the limit allows")
	}
}

func TestTotal(t *testing.T) {
	limit := Limit{Algorithm: FixedWindow, Count: 10, Window: 3600 * second}
	c := Check{Kind: KindTotal, Least: 9}
	records := steady(limit, 1000, 20_000)
	expectPass(t, verdict(c, records, limit))
	over := append(steady(limit, 1000, 20_000), check("s", begin+30_000, 1, true, 0))
	expectFinding(t, verdict(c, over, limit), "admitted 11, at most 10")
	expectFinding(t, verdict(c, records[:8], limit), "admitted 8 in s and less than 9 in 1 of 1 runs")
	c.Misses = 1
	expectPass(t, verdict(c, records[:8], limit))
}

func TestClaims(t *testing.T) {
	limit := Limit{Algorithm: FixedWindow, Count: 10, Window: 3600 * second}
	known, claim := check("s", begin, 1, true, 0), check("s", begin+1000, 9, true, 0)
	known.Remaining, claim.Note = 9, NoteClaim
	expectPass(t, verdict(Check{Kind: KindClaims}, []Record{known, claim}, limit))
	claim.Allowed = false
	expectFinding(t, verdict(Check{Kind: KindClaims}, []Record{known, claim}, limit), "Remaining was 9")
	expectFinding(t, verdict(Check{Kind: KindClaims}, []Record{known}, limit), "no claims")
}

func TestWaits(t *testing.T) {
	limit := Limit{Algorithm: TokenBucket, Count: 1, Window: second}
	c := Check{Kind: KindWaits, Least: 1}
	first, denied := check("s", begin, 1, true, 0), check("s", begin+1000, 1, false, second-1000)
	again, passes := check("s", begin+2000, 1, false, second-2000), check("s", begin+second+1, 1, true, 0)
	expectPass(t, verdict(c, []Record{first, denied, again, passes}, limit))

	late := passes
	late.Allowed, late.RetryAfter = false, 10
	expectFinding(t, verdict(c, []Record{first, denied, late}, limit), "after its RetryAfter")

	early := check("s", begin+second-10_000, 1, true, 0)
	expectFinding(t, verdict(c, []Record{first, denied, early}, limit), "before its RetryAfter")

	// A node that got the store's response late may name an end that is as much too late, and no more.
	slow, cached := first, check("s", begin+20_000, 1, false, second-1000)
	slow.Received = slow.Sent + 20_000
	cached.Path, cached.Store = "cache", 0
	passes.Sent, passes.Received = passes.Store, passes.Store
	expectPass(t, verdict(c, []Record{slow, cached, passes, check("s", begin+2*second, 1, false, second), check("s", begin+3*second+1, 1, true, 0)}, limit))
	expectFinding(t, verdict(c, []Record{first, cached, passes}, limit), "before its RetryAfter")

	moved := check("s", begin+3000, 1, false, second/2)
	expectFinding(t, verdict(c, []Record{first, denied, moved, passes}, limit), "earlier than that of a denial before")

	short := check("s", begin+1000, 1, false, second/2)
	expectFinding(t, verdict(c, []Record{first, short, passes}, limit), "must be 0.99")

	forever := denied
	forever.RetryAfter = -1
	expectFinding(t, verdict(c, []Record{first, forever, passes}, limit), "without a RetryAfter")
	expectFinding(t, verdict(c, []Record{first, denied}, limit), "prove nothing")
}

// TestWaitsTogether: with several limits the longest wait counts.
func TestWaitsTogether(t *testing.T) {
	limits := []Limit{{Algorithm: TokenBucket, Count: 5, Window: second}, {Algorithm: TokenBucket, Count: 5, Window: 3600 * second}}
	var records []Record
	for i := range int64(5) {
		records = append(records, check("s", begin+i, 1, true, 0))
	}
	for _, wait := range []int64{720*second - 10, second / 5} {
		known := slices.Concat(records, []Record{check("s", begin+10, 1, false, wait)})
		for i := range known {
			known[i].Limits = []int{0, 1}
		}
		v := verdict(Check{Kind: KindWaits}, known, limits...)
		if wait > second {
			expectPass(t, v)
		} else {
			expectFinding(t, v, "must be 719.99")
		}
	}
}

func TestHeaders(t *testing.T) {
	limit := Limit{Algorithm: TokenBucket, Count: 1, Window: 100 * second}
	for header, good := range map[int64]bool{25: false, 26: true, 28: true, 29: false} {
		r := check("s", begin, 1, false, 25*second+1)
		r.Header = header
		v := verdict(Check{Kind: KindHeaders}, []Record{r}, limit)
		if good {
			expectPass(t, v)
		} else {
			expectFinding(t, v, "must be 26 to 28")
		}
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	h := Header{Format: Format, Scenario: "x", Seed: 7, Nodes: 2, Limits: allLimits[:1], Checks: []Check{{Kind: KindCeiling}}}
	records := steady(allLimits[0], 50_000, second)
	if err := Write(path, h, records); err != nil {
		t.Fatal(err)
	}
	header, read, err := Read(path)
	if err != nil || !reflect.DeepEqual(header, h) || !reflect.DeepEqual(read, records) {
		t.Errorf("%+v, %d records, %v", header, len(read), err)
	}
}

// TestEmptyHistory: a history that proves nothing is a finding.
func TestEmptyHistory(t *testing.T) {
	expectFinding(t, Judge(Header{}, nil), "no checks")
	for kind := range kinds {
		expectFinding(t, verdict(Check{Kind: kind}, nil, allLimits[0]), "no requests")
	}
	expectFinding(t, verdict(Check{Kind: "x"}, nil, allLimits[0]), `unknown check "x"`)
	broken := check("s", begin, 1, false, 0)
	broken.Error = "connection refused"
	expectFinding(t, verdict(Check{Kind: KindCeiling}, []Record{broken}, allLimits[0]), "without a response: connection refused")
}
