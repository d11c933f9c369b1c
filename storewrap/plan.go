package storewrap

import "github.com/headgate/headgate"

// maxCacheable is how many charges a request may have for the cache to decide it.
const maxCacheable = 8

// plan is one request on its way through the store.
type plan struct {
	charges []headgate.Charge
	results []headgate.Result
	plain   bool // the cache may decide it
	lookups [maxCacheable]lookup

	// Where some charges need not be asked about, or own leases are returned with the question, it is made anew: first the
	// returns, then the charges at index.
	returns  []headgate.Charge
	question []headgate.Charge
	sent     instant // when it was asked
	answers  []headgate.Result
	index    []int
}

// lookup is what the cache found for one charge.
type lookup struct {
	verdict verdict
	holds   bool   // this node holds units of the counter
	lease   *lease // that units were spent from
}

// verdict is what the cache knows of a charge.
type verdict uint8

const (
	unknown verdict = iota // the store must be asked
	fits                   // the charge would be granted, by the store
	denied                 // it would not
	spent                  // it was, from a lease
)

// decided reports whether the store need not be asked about a charge: its units are spent, or it only observes and would not be
// counted.
func (p *plan) decided(i int) bool {
	return i < maxCacheable && (p.lookups[i].verdict == spent || p.lookups[i].verdict == denied && p.charges[i].Observe)
}

// ask returns what to ask the store, and where its answers belong.
func (p *plan) ask() ([]headgate.Charge, []headgate.Result) {
	all := len(p.returns) == 0
	for i := range p.charges {
		all = all && !p.decided(i)
	}
	p.question, p.answers, p.index = p.charges, p.results, nil
	if all {
		return p.question, p.answers
	}
	p.question = append([]headgate.Charge(nil), p.returns...)
	p.index = make([]int, 0, len(p.charges))
	for i := range p.charges {
		if !p.decided(i) {
			p.question, p.index = append(p.question, p.charges[i]), append(p.index, i)
		}
	}
	p.answers = make([]headgate.Result, len(p.question))
	return p.question, p.answers
}

// asked returns the charges that the store was asked about, and their results.
func (p *plan) asked() ([]headgate.Charge, []headgate.Result) {
	return p.question[len(p.returns):], p.answers[len(p.returns):]
}

// finish puts the answers where the caller looks for them.
func (p *plan) finish() {
	_, answers := p.asked()
	for i, at := range p.index {
		p.results[at] = answers[i]
	}
}

// denied reports whether an enforcing charge was denied.
func (p *plan) denied() bool {
	charges, results := p.asked()
	for i := range charges {
		if denies(&charges[i], &results[i]) {
			return true
		}
	}
	return false
}

// denies reports whether a charge keeps its request from passing.
func denies(c *headgate.Charge, r *headgate.Result) bool {
	return r.Err == nil && !r.Allowed && !c.Observe && ordinary(c)
}

// ordinary reports whether a node may decide the charge on its own. The others are about what a store has recorded.
func ordinary(c *headgate.Charge) bool {
	return c.Refund.Units == 0 && c.Release.Units == 0 && !c.Force && !c.Credit
}

// cacheable reports whether the cache may decide a request at all. The others are about what a store has recorded, or would say,
// or have a limit on trial, which is counted also when its twin denies, or several charges on one counter.
func cacheable(charges []headgate.Charge) bool {
	for i := range charges {
		c := &charges[i]
		if c.Cost <= 0 || c.Limit.Count <= 0 || c.AtLeast != 0 || c.Hold != 0 || c.Twin != 0 || !ordinary(c) ||
			headgate.IndexCharge(charges, c.Subject, c.Counter) != i {
			return false
		}
	}
	return len(charges) <= maxCacheable
}
