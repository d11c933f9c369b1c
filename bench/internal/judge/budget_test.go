package judge

import "testing"

func TestBudget(t *testing.T) {
	month := Limit{Algorithm: FixedWindow, Count: 100, Window: 30 * 24 * 3600 * second}
	year := Limit{Algorithm: FixedWindow, Count: 500, Window: 360 * 24 * 3600 * second}
	c := Check{Kind: KindBudget}
	costs := func(costs ...int64) (records []Record) {
		for i, cost := range costs {
			records = append(records, check("s", begin+int64(i)*second, cost, true, 0))
		}
		return append(records, check("s", begin+100*second, 1, false, -1))
	}
	count := func(limit Limit, used int64) Record { return peek(limit, 200*second, used) }
	exact := append(costs(50, 10, 5, 1, 34), count(month, 100))
	expectPass(t, verdict(c, exact, month))
	expectFinding(t, verdict(c, exact[:6], month), "no peek")
	expectFinding(t, verdict(c, append(costs(50, 10, 5, 1, 35), count(month, 100)), month), "admitted 101, at most 100")
	expectFinding(t, verdict(c, append(costs(50, 10, 5, 1, 33), count(month, 100)), month), "admitted 99 and at most 0")
	expectFinding(t, verdict(c, append(costs(50, 50), count(month, 99)), month), "counted 99, admitted 100")
	c.Leased = 1
	expectFinding(t, verdict(c, exact, month), "0 requests admitted by lease, at least 1")
	exact[3].Path = "lease"
	expectPass(t, verdict(c, exact, month))
	c.Leased, c.Runs = 0, 1
	over := append(costs(50, 51), count(month, 100))
	over[1].Path = "local"
	expectFinding(t, verdict(c, over, month), "0 subjects decided by the store, at least 1")
	expectPass(t, verdict(Check{Kind: KindBudget}, over, month))

	left := check("s", begin+50*second, 10, false, -1)
	left.Note = NoteLeft
	expectPass(t, verdict(c, append(costs(50, 40), left, count(month, 100)), month))
	expectPass(t, verdict(c, append(costs(50, 50), left, count(month, 100)), month))
	expectFinding(t, verdict(c, append(costs(50, 39), left, count(month, 100)), month), "admitted 89 and at most 10")

	two := append(costs(50, 50), count(month, 100), count(year, 100))
	for i := range two[:3] {
		two[i].Limits = []int{0, 1}
	}
	two[4].Limit = 1
	expectPass(t, verdict(c, two, month, year))
	two[4].Remaining -= 10
	expectFinding(t, verdict(c, two, month, year), "one limit counted 100, another 110")
}

// TestBudgetQueue: the last admission of a leaky bucket may exceed the longest delay, by any cost.
func TestBudgetQueue(t *testing.T) {
	queue := Limit{Algorithm: LeakyBucket, Count: 100, Window: 100 * 3600 * second, MaxDelay: 9 * 3600 * second}
	c, end := Check{Kind: KindBudget}, Record{Op: OpPeek, Subject: "s", Sent: begin + second, Received: begin + second, Path: "store"}
	last := check("s", begin+100, 50, true, 0)
	expectPass(t, verdict(c, []Record{check("s", begin, 9, true, 0), last, end}, queue))
	expectPass(t, verdict(c, []Record{check("s", begin, 9, true, 0), check("s", begin+1, 1, true, 0), end}, queue))
	expectFinding(t, verdict(c, []Record{check("s", begin, 10, true, 0), last, end}, queue), "admitted 11, at most 10")
	expectFinding(t, verdict(c, []Record{check("s", begin, 9, true, 0), end}, queue), "admitted 9 and at most 0")
}
