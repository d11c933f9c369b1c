package storewrap

import "github.com/headgate/headgate"

// maxCacheable is the maximum number of charges of a request that the cache decides.
const maxCacheable = 8

// plan is the state of one Take.
type plan struct {
	charges     []headgate.Charge
	results     []headgate.Result
	isCacheable bool
	lookups     [maxCacheable]lookup

	// If the cache decided some charges, or returns leases with the call, the call has its own slices: the returns first,
	// then the charges at index. Otherwise they are those of the caller.
	returns     []headgate.Charge
	callCharges []headgate.Charge
	sentAt      instant // when the call began
	callResults []headgate.Result
	index       []int
}

// lookup is what the cache found for one charge.
type lookup struct {
	verdict    verdict
	holdsLease bool   // this node has a lease on the counter
	lease      *lease // the lease that the units were spent from
}

// verdict is what the cache knows about a charge.
type verdict uint8

const (
	unknown verdict = iota // the store must decide
	fits                   // the store would grant it
	denied                 // the store would deny it
	spent                  // it was granted from a lease
)

// decided reports whether a charge need not be sent to the store: its units are spent from a lease, or it observes only and
// would not be counted.
func (p *plan) decided(i int) bool {
	return i < maxCacheable && (p.lookups[i].verdict == spent || p.lookups[i].verdict == denied && p.charges[i].Observe)
}

// prepareCall returns the charges to send to the store, and the slice for their results.
func (p *plan) prepareCall() ([]headgate.Charge, []headgate.Result) {
	everything := len(p.returns) == 0
	for i := range p.charges {
		everything = everything && !p.decided(i)
	}
	p.callCharges, p.callResults, p.index = p.charges, p.results, nil
	if everything {
		return p.callCharges, p.callResults
	}
	p.callCharges = append([]headgate.Charge(nil), p.returns...)
	p.index = make([]int, 0, len(p.charges))
	for i := range p.charges {
		if !p.decided(i) {
			p.callCharges, p.index = append(p.callCharges, p.charges[i]), append(p.index, i)
		}
	}
	p.callResults = make([]headgate.Result, len(p.callCharges))
	return p.callCharges, p.callResults
}

// sentCharges returns the request's charges that were sent to the store, without the returns, and their results.
func (p *plan) sentCharges() ([]headgate.Charge, []headgate.Result) {
	return p.callCharges[len(p.returns):], p.callResults[len(p.returns):]
}

// finish copies the results of the call to the caller's slice.
func (p *plan) finish() {
	_, callResults := p.sentCharges()
	for i, at := range p.index {
		p.results[at] = callResults[i]
	}
}

// denied reports whether an enforcing charge was denied.
func (p *plan) denied() bool {
	charges, results := p.sentCharges()
	for i := range charges {
		if denies(&charges[i], &results[i]) {
			return true
		}
	}
	return false
}

// denies reports whether a charge denies its request.
func denies(c *headgate.Charge, r *headgate.Result) bool {
	return r.Err == nil && !r.Allowed && !c.Observe && (ordinary(c) || concurrent(c) && c.Slots == headgate.AcquireSlots)
}

// ordinary reports whether a node may decide the charge on its own. Other charges refer to what the store has recorded, and a
// concurrency limit to what all nodes have in use.
func ordinary(c *headgate.Charge) bool {
	return !concurrent(c) && c.Refund.Units == 0 && c.Release.Units == 0 && !c.Force && !c.Credit
}

// concurrent reports whether the charge is on a concurrency limit. Nothing of it is cached, leased or counted here, because what a node
// has in use is known to its limiter.
func concurrent(c *headgate.Charge) bool { return c.Limit.Algorithm == headgate.Concurrency }

// cacheable reports whether the cache may decide a request. It does not decide charges that refer to what the store has
// recorded or would grant, candidates, which are counted even if their twin denies, or several charges on one counter.
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
