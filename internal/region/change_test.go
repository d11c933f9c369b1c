package region

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// otherMembers is a region that responds, but not with its weights.
type otherMembers struct{}

func (otherMembers) PullWeights(context.Context, string) (string, error) {
	return "", errors.New("other members or weights: write the same regions.members")
}

// SwapWeights makes it a Keeper without tables.
func (otherMembers) SwapWeights(context.Context, string, string, string) (string, time.Time, error) {
	return "", time.Now(), nil
}

// TestChangeUnreadable checks the error of a change while a region responds with an error.
func TestChangeUnreadable(t *testing.T) {
	t.Parallel()
	shares := NewShares([]Member{{Name: "eu", Weight: 1}, {Name: "us", Weight: 1}}, "eu")
	w := NewWeights(shares, otherMembers{}, map[string]Puller{"us": otherMembers{}}, slog.New(slog.DiscardHandler))
	_, err := w.Change(t.Context(), map[string]int64{"us": 2}, nil)
	const want = "the weights of other regions cannot be read: us (other members or weights: write the same regions.members): " +
		"nothing was changed: remove the cause, then try again; only if no server of a region runs, drain it with --dead"
	if !errors.Is(err, ErrNoResponse) || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
