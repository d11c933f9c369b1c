package regiongrpc

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// otherSecret is what is wrong with a region that hashes subjects in another way.
const otherSecret = "it has another secret_file: write the same secret in all regions"

// maxFailures is the number of consecutive failed calls after which a region counts as unreachable.
const maxFailures = 2

// State is what this server knows about another region.
type State struct {
	Peer, Address string
	// Up is whether the region responds.
	Up bool
	// Problem is why it does not respond, or why it lends nothing.
	Problem string
	// LastContact is when it last responded; the zero time if it never has.
	LastContact time.Time
	// RTT is the usual round trip.
	RTT time.Duration
	// Region is the name by which it introduced itself, and Version its version.
	Region, Version string
	// OtherMembers is whether its config has other members, weights or another secret, and OtherSecret whether it has another secret.
	OtherMembers, OtherSecret bool
	// ClockAhead is by how much the clock of its store is ahead of that of this region's store, to within half a round trip. It is
	// meaningless unless ClockKnown is set.
	ClockAhead time.Duration
	ClockKnown bool
}

func (l *link) currentState() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// record updates the state, and logs changes.
func (l *link) record(h *hello) {
	l.mu.Lock()
	defer l.mu.Unlock()
	log := l.network.options.Log.With("region", l.member.Name, "address", l.member.Address)
	if h.err != nil {
		l.fail(log, h.err)
		return
	}
	before := l.state
	s := &l.state
	s.Up, s.Problem, s.LastContact, s.Region, s.Version = true, "", h.received, h.GetRegion(), h.GetVersion()
	s.OtherMembers, s.OtherSecret = h.GetEpoch() != l.network.options.Epoch, h.GetSubjects() != l.network.options.Subjects
	rtt := h.received.Sub(h.sent)
	if s.RTT == 0 {
		s.RTT = rtt
	} else {
		s.RTT += (rtt - s.RTT) / 8
	}
	own, known := l.network.clock.at(h.sent.Add(rtt / 2))
	s.ClockKnown = known && h.GetStoreTimeUs() != 0
	s.ClockAhead = 0
	if s.ClockKnown {
		s.ClockAhead = time.UnixMicro(h.GetStoreTimeUs()).Sub(own)
	}
	if !before.Up && (!before.LastContact.IsZero() || l.failures >= maxFailures) {
		log.Info("region recovered; units are lent and borrowed again")
	} else if !before.Up {
		log.Info("region connected", "version", s.Version, "rtt", s.RTT.Round(time.Microsecond).String())
	}
	l.failures = 0
	l.compare(log, &before)
}

// compare logs if the region is not the one that the config says.
func (l *link) compare(log *slog.Logger, before *State) {
	s := &l.state
	switch {
	case s.Region != l.member.Name:
		s.Problem = fmt.Sprintf("the address leads to region %s: correct it in regions.members", quote(s.Region))
	case s.OtherSecret:
		s.Problem = otherSecret
	case s.OtherMembers:
		s.Problem = "it has other members or weights: write the same regions.members in the configs of all regions"
	}
	switch {
	case s.Problem == before.Problem && before.Up:
	case s.Region != l.member.Name:
		log.Error("another region responds; correct the address in regions.members", "responds", s.Region)
	case s.OtherSecret:
		log.Error("region has another secret_file; its counters are those of other subjects, so that each region allows the limit, until secret_file has "+
			"the same content in all regions", "version", s.Version)
	case s.OtherMembers:
		log.Error("region has other members or weights; no units are lent or borrowed, and the shares of all regions may add up to more than "+
			"the limit, until regions.members is the same in the configs of all regions", "version", s.Version)
	case before.Up:
		log.Info("region has the same members and weights; units are lent and borrowed")
	}
}

// fail records that the region did not respond.
func (l *link) fail(log *slog.Logger, err error) {
	l.failures++
	if l.failures < maxFailures {
		return
	}
	l.state.Problem = err.Error()
	if l.state.Up || l.failures == maxFailures {
		log.Warn("region unreachable; its units cannot be borrowed, so that this region may deny requests although the limit has units left: "+
			"check the network, the address in regions.members and the certificates", "error", err)
	}
	l.state.Up = false
}

// quote quotes a name that another server sent, and shortens it.
func quote(name string) string {
	const longest = 64
	if len(name) > longest {
		name = name[:longest]
	}
	return strconv.Quote(name)
}
