package region

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// Member is a region and its weight: how much of every shared limit it owns, compared with the others.
type Member struct {
	Name   string
	Weight int64
}

// Shares divides limits among the members. Weights may change its division while it is used.
type Shares struct {
	members []Member // by name
	seeds   []uint64 // of their draws for homes
	own     int
	epoch   uint64
	secret  uint64 // identifies the secret
	phases  atomic.Pointer[phases]

	// Until freshUntil, in nanoseconds since start, no table that this region has acknowledged is unknown here. It is 0 if weights never
	// change. refresh reads the tables again.
	start      time.Time
	freshUntil atomic.Int64
	refresh    func(context.Context) error
}

// NewShares returns the shares as the member called own sees them. All members must have the same list, in any order.
func NewShares(members []Member, own string) *Shares {
	s := &Shares{members: slices.Clone(members), start: time.Now()}
	slices.SortFunc(s.members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	s.own = s.index(own)
	hash := sha256.New()
	for _, m := range s.members {
		_, _ = fmt.Fprintf(hash, "%s=%d\n", m.Name, m.Weight)
		s.seeds = append(s.seeds, seedOf(m.Name))
	}
	s.epoch = binary.BigEndian.Uint64(hash.Sum(nil))
	s.phases.Store(&phases{divisions: []division{{fractions: divide(s.members)}}})
	return s
}

// WithSecret makes the epoch depend on the secret that subjects are hashed with, because regions with different secrets count different
// subjects. It must be called before the shares are used, and returns them.
func (s *Shares) WithSecret(secret []byte) *Shares {
	if len(secret) > 0 {
		digest := func(of string) uint64 {
			sum := sha256.Sum256(slices.Concat([]byte(of), secret))
			return binary.BigEndian.Uint64(sum[:])
		}
		s.epoch, s.secret = digest(fmt.Sprintf("region epoch %d\n", s.epoch)), digest("region secret\n")
	}
	return s
}

// Subjects identifies the secret that subjects are hashed with; 0 if there is none.
func (s *Shares) Subjects() uint64 { return s.secret }

// Share returns this region's share of a limit; it is a headgate.Options.Share.
func (s *Shares) Share(subject headgate.Subject, whole *headgate.Limit) headgate.Limit {
	p, class := s.phases.Load(), s.class(subject)
	slot := p.cache.slot(class, whole)
	if known := slot.Load(); known != nil && known.class == class && known.whole == *whole {
		return known.share
	}
	share := p.share(class, s.own, whole)
	slot.Store(&cachedShare{class, *whole, share})
	return share
}

// shareOf returns a member's share of a limit by the newest weights.
func (s *Shares) shareOf(member int, subject headgate.Subject, whole *headgate.Limit) headgate.Limit {
	return s.phases.Load().newest().fractions[s.class(subject)][member].Share(*whole)
}

// class returns the class of a subject, by which the remainders of divisions go to other members.
func (s *Shares) class(subject headgate.Subject) uint64 {
	return binary.BigEndian.Uint64(subject[:8]) % uint64(len(s.members))
}

// index returns the index of a member, or -1.
func (s *Shares) index(name string) int {
	return slices.IndexFunc(s.members, func(m Member) bool { return m.Name == name })
}

// Epoch identifies the members, the weights of the config and the secret. Members with different epochs do not lend to each other. Those that
// know different tables do: a loan moves units from one share to another, whatever the shares are.
func (s *Shares) Epoch() uint64 { return s.epoch }

// use replaces the tables, which this region had at a time of its store.
func (s *Shares) use(tables []table, at int64) {
	if len(tables) == 0 && !s.changed() {
		return // the time has no effect
	}
	p := &phases{divisions: []division{{fractions: divide(s.members)}}, at: at}
	for _, t := range tables {
		members := slices.Clone(s.members)
		for m := range members {
			members[m].Weight = t.Weights[members[m].Name]
		}
		p.divisions = append(p.divisions, division{fractions: divide(members), since: t.Since})
	}
	s.phases.Store(p)
}

// changed reports whether the weights of the config have ever been replaced.
func (s *Shares) changed() bool { return len(s.phases.Load().divisions) > 1 }

// fresh returns nil if no table that this region has acknowledged is unknown here. It reads the tables if necessary.
func (s *Shares) fresh(ctx context.Context) error {
	if until := s.freshUntil.Load(); until == 0 || int64(time.Since(s.start)) < until {
		return nil
	}
	return s.refresh(ctx)
}
