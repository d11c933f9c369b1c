package region

import "time"

// othersSpare is whether other regions have units left of a counter, as far as this node knows.
type othersSpare struct {
	known  bool
	window int64 // that it is about
	left   bool
	at     time.Duration // of the last response
}

// spareLasts is for how long the response of a region is used, if its bucket refills faster. It is longer than a pause between loan requests.
const spareLasts = 2 * maxBackoff

// begin prepares for the loan requests of a window. Regions that have not responded are expected to have units.
func (o *othersSpare) begin(window int64, now time.Duration) {
	if !o.known || o.window != window {
		*o = othersSpare{known: true, window: window, left: true, at: now}
	}
}

// update records the response of a region, which lenders already has.
func (o *othersSpare) update(lenders []lenderAccount, own int, now time.Duration) {
	o.left, o.at = false, now
	for i := range lenders {
		o.left = o.left || i != own && lenders[i].spare > 0
	}
}

// count counts a denial.
func (o *othersSpare) count(s *stats, g *reading, now time.Duration) {
	switch {
	case !o.known || o.window != g.start:
		s.deniedUnknown.Add(1)
	case o.left || g.refill > 0 && now-o.at > max(g.refill, spareLasts):
		s.deniedWithSpare.Add(1)
	default:
		s.deniedUsedUp.Add(1)
	}
}
