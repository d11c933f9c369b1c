package region

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

const (
	// pollEvery is how often a server reads the tables of its region, and pullEvery how often those of the others.
	pollEvery = time.Second
	pullEvery = 2 * time.Second
	// freshFor is how long a server uses its share after it has sent the last request that read the tables. maxCall is more than the time in
	// which charges are answered, or their answers ignored.
	freshFor = 5 * time.Second
	maxCall  = 4 * time.Second
	// maxSwaps is how often a write is repeated because another server has written.
	maxSwaps    = 4
	pollTimeout = time.Second
	pullTimeout = 2 * time.Second
	// learnTimeout is how long a server that starts waits for the tables of another region.
	learnTimeout = 3 * time.Second
)

// Keeper keeps a text durably for all servers of a region, as a redisstore.Store does.
type Keeper interface {
	// SwapWeights replaces the text of a name if it is still old, unless both are the same. It returns the text then, and the time of the store
	// at which it had that text. The text is empty at first.
	SwapWeights(ctx context.Context, name, old, replacement string) (current string, at time.Time, err error)
}

// Puller reaches the tables of another region.
type Puller interface {
	// PullWeights returns the tables, or an empty text if they have the digest.
	PullWeights(ctx context.Context, digest string) (string, error)
}

// Weights keeps the weights of this region's Shares up to date, and changes them.
//
// A change is a new table in the record of one region. The servers of all regions read the records of the others, so that it spreads as long
// as any server of the region is up. A region that has the table uses at most its share by it from then on, and acknowledges
// this when it holds for all its servers. A region that knows all acknowledgements lets older tables lapse, limit by limit, when all that was
// granted before no longer counts. No step depends on the server that made the change, and none on a clock of another region.
type Weights struct {
	shares *Shares
	own    string
	name   string // of the record; regions with other members or weights in their config start with another one
	keeper Keeper
	peers  map[string]Puller
	log    *slog.Logger
	turn   chan struct{} // has an element while the keeper is being read

	mu       sync.Mutex
	record   record // as the keeper had it last
	at       int64  // when, by the region's store
	incoming record // from other regions, to be kept
	contacts map[string]time.Time
}

// NewWeights makes shares follow the tables that keeper has. Pullers reach the other regions, by name.
func NewWeights(shares *Shares, keeper Keeper, peers map[string]Puller, log *slog.Logger) *Weights {
	w := &Weights{
		shares: shares, own: shares.members[shares.own].Name, name: fmt.Sprintf("%016x", shares.epoch), keeper: keeper, peers: peers, log: log,
		turn: make(chan struct{}, 1), contacts: map[string]time.Time{},
	}
	shares.refresh = w.poll
	shares.freshUntil.Store(1) // read them first
	return w
}

// Learn reads the tables of this region and waits until another one responds, but not for long: a region that was declared dead must not use
// its old share when it returns.
func (w *Weights) Learn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	_ = w.poll(ctx) // it is repeated later
	contacts := make(chan struct{}, len(w.peers))
	var pulling sync.WaitGroup
	for name, peer := range w.peers {
		pulling.Go(func() {
			for ctx.Err() == nil {
				if w.pull(ctx, name, peer) == nil {
					contacts <- struct{}{}
					return
				}
				pause(ctx, pollTimeout/10)
			}
		})
	}
	select {
	case <-contacts:
	case <-ctx.Done():
		w.log.Warn("no other region responded at the start; this region uses the last weights it knows")
	}
	cancel()
	pulling.Wait()
	_ = w.poll(context.WithoutCancel(ctx))
}

// Run reads the tables of all regions until ctx ends.
func (w *Weights) Run(ctx context.Context) {
	var running sync.WaitGroup
	every := func(interval time.Duration, f func()) {
		running.Go(func() {
			for ctx.Err() == nil {
				f()
				pause(ctx, interval)
			}
		})
	}
	every(pollEvery, func() { _ = w.poll(ctx) }) // after freshFor, charges fail
	for name, peer := range w.peers {
		every(pullEvery, func() { _ = w.pull(ctx, name, peer) }) // it is repeated, and State says how long ago
	}
	running.Wait()
}

// pause waits, until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// poll reads the tables of this region, adds what others know and what follows from the time, and makes the shares use them.
func (w *Weights) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return fmt.Errorf("region: weights: %w: %w", headgate.ErrUnavailable, ctx.Err())
	}
	current, replacement := "", ""
	for range maxSwaps {
		sent := time.Since(w.shares.start)
		kept, at, err := w.keeper.SwapWeights(ctx, w.name, current, replacement)
		if err != nil {
			return fmt.Errorf("region: weights: %w: %w", headgate.ErrUnavailable, err)
		}
		current = kept
		if replacement, err = w.next(current, at.UnixMicro()); err != nil {
			return fmt.Errorf("region: weights: %w: %w", headgate.ErrUnavailable, err)
		}
		w.shares.freshUntil.Store(int64(sent + freshFor))
		if replacement == current {
			return nil
		}
	}
	return nil // the next poll continues
}

// next takes over what the keeper had at a time, and returns what it should have.
func (w *Weights) next(current string, at int64) (string, error) {
	kept, err := decodeRecord(current, w.shares.members)
	if err != nil {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.record.newest()
	if lost := w.record; len(lost.Tables) > len(kept.Tables) { // the store has lost data
		w.incoming.merge(&lost, true)
	}
	w.record, w.at = kept.clone(), at
	w.report(before)
	w.apply()
	kept.advance(w.own, at)
	kept.merge(&w.incoming, false)
	return kept.encode(), nil
}

// apply makes the shares use the tables of this region and of the others.
func (w *Weights) apply() {
	known := w.record.clone()
	known.merge(&w.incoming, false)
	w.shares.use(known.Tables, w.at)
}

// report logs changes of the newest table.
func (w *Weights) report(before *table) {
	now := w.record.newest()
	switch {
	case now == nil:
	case before == nil || before.compare(now) != 0:
		w.log.Info("weights of regions change; a region that loses weight has its smaller share now, and others their larger one when all have acknowledged",
			"serial", now.Serial, "weights", now.Weights, "dead", now.Dead)
	case before.Since == 0 && now.Since != 0:
		w.log.Info("all regions have acknowledged their new weights; shares grow when what was granted before no longer counts", "serial", now.Serial)
	}
}

// pull reads the tables of another region.
func (w *Weights) pull(ctx context.Context, name string, peer Puller) error {
	w.mu.Lock()
	_, digest := w.record.shared()
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	text, err := peer.PullWeights(ctx, digest)
	if err != nil {
		return err
	}
	theirs, err := decodeRecord(text, w.shares.members)
	if err == nil && len(theirs.Tables) > 2*maxTables {
		err = errors.New("too many tables")
	}
	if err != nil {
		return fmt.Errorf("region %s: %w", name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.incoming.merge(&theirs, false)
	w.apply() // this region's store may be unavailable, and its servers decide by the share without it
	w.contacts[name] = time.Now()
	return nil
}

// Tables returns the tables of this region for another one that has those with the digest, or an empty text if they are the same.
func (w *Weights) Tables(digest string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, own := w.record.shared()
	if own == digest {
		return ""
	}
	return text
}
