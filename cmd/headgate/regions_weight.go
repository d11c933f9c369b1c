package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
)

const (
	// ackTimeout is how long a command waits until all regions have acknowledged a change, which takes about 15 seconds.
	ackTimeout = 45 * time.Second
	ackEvery   = 500 * time.Millisecond
	// maxSilence is how long it waits for a new state from the server.
	maxSilence = 10 * time.Second
)

const weightsExitCodes = `

The change does not depend on this command, nor on the server. It needs a token with the role admin.

Exit codes:
  0  all regions have acknowledged the change
  1  the change is under way, or may be: a region has not acknowledged it yet, the command was interrupted, or the server no longer responds;
     headgate regions shows the state
  2  nothing was changed`

func newRegionsWeight(p *program) *cobra.Command {
	var change adminapi.WeightsChange
	cmd := p.serverCommand(&cobra.Command{
		Use:   "weight NAME=WEIGHT... --server ADDRESS",
		Short: "Change the weights of regions, and so their shares of shared limits",
		Long: `Change the weights of regions. Regions that are not named keep theirs.

Regions together never exceed a limit: a region that loses weight has its smaller share within seconds, and the others have their larger
share when all regions have acknowledged the change, and what was allowed before no longer counts. The output shows when that is.
If a region does not respond, nothing changes.` + weightsExitCodes,
		Example: "  headgate regions weight eu=3 us=1 --reason \"more traffic in eu\" --server https://gate:8083",
		Args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (report, error) {
		change.Weights = map[string]int64{}
		for _, arg := range args {
			name, text, _ := strings.Cut(arg, "=")
			weight, err := strconv.ParseInt(text, 10, 64)
			if err != nil || name == "" {
				return nil, &usageError{fmt.Errorf("weight %q: must be NAME=WEIGHT, like eu=3", arg)}
			}
			if _, twice := change.Weights[name]; twice {
				return nil, &usageError{fmt.Errorf("weight %q: region %s is named twice", arg, name)}
			}
			change.Weights[name] = weight
		}
		return changeWeights(ctx, c, &change)
	})
	return withReason(cmd, &change)
}

func withReason(cmd *cobra.Command, change *adminapi.WeightsChange) *cobra.Command {
	cmd.Flags().StringVar(&change.Reason, "reason", "", "`TEXT` for the log of the server")
	return cmd
}

func newRegionsDrain(p *program) *cobra.Command {
	var change adminapi.WeightsChange
	var dead, yes bool
	cmd := p.serverCommand(&cobra.Command{
		Use:   "drain NAME --server ADDRESS",
		Short: "Give the share of a region to the others",
		Long: `Set the weight of a region to 0, so that the others have its share. The region then denies all requests that shared limits apply to. If it
should still allow some, give it a small weight with headgate regions weight.

With --dead, the region need not acknowledge this. Use it only if no server of the region runs. If one allows requests, regions together
may exceed their limits. When servers of the region start again, they learn of the change from the other regions before they
allow requests; do not start them while they reach no other region.` + weightsExitCodes,
		Example: "  headgate regions drain ap --server https://gate:8083\n  headgate regions drain ap --dead --server https://gate:8083",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (report, error) {
		change.Weights, change.Dead = map[string]int64{args[0]: 0}, nil
		if dead {
			change.Weights, change.Dead = nil, args
			if ok, err := p.assertDead(ctx, args[0], yes); err != nil || !ok {
				return nil, err
			}
		}
		return changeWeights(ctx, c, &change)
	})
	cmd.Flags().BoolVar(&dead, "dead", false, "no server of the region runs: do not wait for its acknowledgement")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation of --dead; required without a terminal")
	return withReason(cmd, &change)
}

// assertDead reports whether the operator confirms that a region is dead.
func (p *program) assertDead(ctx context.Context, name string, yes bool) (bool, error) {
	p.logf("You assert that no server of region %s allows requests, and that none will be started while it reaches no other region.\n"+
		"Otherwise regions together may exceed their limits.", printable(name))
	if yes {
		return true, nil
	}
	ok, err := p.confirm(ctx, "Give its share to the other regions?")
	switch {
	case errors.Is(err, errNoTerminal):
		err = errors.New("standard input is not a terminal, nothing was changed: if no server of the region runs, pass --yes")
	case err == nil && !ok:
		err = &exitError{2, "nothing was changed\n"}
	}
	return ok, err
}

func newRegionsRestore(p *program) *cobra.Command {
	var change adminapi.WeightsChange
	cmd := p.serverCommand(&cobra.Command{
		Use:   "restore NAME --server ADDRESS",
		Short: "Give a region the weight of its config again",
		Long: `Set the weight of a region to that in the config of the server, for example after headgate regions drain. The region has its share
when all regions have acknowledged this, and what was allowed before no longer counts.` + weightsExitCodes,
		Example: "  headgate regions restore ap --server https://gate:8083",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, args []string) (report, error) {
		now, err := c.Weights(ctx)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(now.Regions, func(r adminapi.RegionWeight) bool { return r.Name == args[0] })
		if at < 0 {
			return nil, fmt.Errorf("region %q: not one of the regions of the server: headgate regions lists them", printable(args[0]))
		}
		change.Weights = map[string]int64{args[0]: now.Regions[at].ConfigWeight}
		return changeWeights(ctx, c, &change)
	})
	return withReason(cmd, &change)
}

// changeWeights makes a change and waits until all regions have acknowledged it.
func changeWeights(ctx context.Context, c *adminclient.Client, change *adminapi.WeightsChange) (report, error) {
	w, err := c.ChangeWeights(ctx, change)
	if unknown, ok := errors.AsType[*adminclient.UnknownOutcomeError](err); ok {
		return nil, &exitError{1, "headgate: " + escapeControl(unknown.Error()) +
			"\nit is unknown whether the weights change: see the output of headgate regions before you try again\n"}
	}
	if err != nil {
		return nil, err
	}
	r := &weightsReport{w, []string{}}
	r.await(ctx, c.Weights)
	return r, failUnless(r.Since != nil)
}

// weightsReport is the JSON of the commands that change weights.
type weightsReport struct {
	adminapi.RegionWeights
	Notes []string `json:"notes"`
}

// await reads the state of the change until all regions have acknowledged it, and notes why it stops earlier.
func (r *weightsReport) await(ctx context.Context, read func(context.Context) (adminapi.RegionWeights, error)) {
	serial, began, fresh := r.Serial, time.Now(), time.Now()
	for r.Since == nil {
		select {
		case <-ctx.Done():
		case <-time.After(ackEvery):
		}
		next, err := readWithin(ctx, read)
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			r.Notes = append(r.Notes, "interrupted: the change is under way and does not depend on this command; headgate regions shows its state")
			return
		case err == nil && !next.At.Equal(r.At): // the server reaches its Redis
			r.RegionWeights, fresh = next, now
		case now.Sub(fresh) < maxSilence:
			continue
		default:
			if err == nil {
				err = errors.New("the server does not reach its Redis")
			}
			r.Notes = append(r.Notes, fmt.Sprintf("no new state since %s: %s", timeText(fresh), printable(err.Error())),
				"the state above is that of the last response. The change does not depend on this server: run headgate regions with --server of another one")
			return
		}
		switch missing := unacknowledged(&r.RegionWeights); {
		case r.Serial != serial:
			r.Notes = append(r.Notes, fmt.Sprintf("change %d has replaced change %d: headgate regions shows its state", r.Serial, serial))
			return
		case r.Since == nil && now.Sub(began) >= ackTimeout:
			r.Notes = append(r.Notes, fmt.Sprintf("check that the servers of %s run, and reach the other regions and their Redis. If no server of a region runs, "+
				"drain it with --dead; to go back, set the weights as they were", wording.List(missing)))
			return
		}
	}
}

// readWithin reads the state for at most maxSilence.
func readWithin(ctx context.Context, read func(context.Context) (adminapi.RegionWeights, error)) (adminapi.RegionWeights, error) {
	within, cancel := context.WithTimeout(ctx, maxSilence)
	defer cancel()
	w, err := read(within)
	if err != nil && within.Err() != nil {
		err = fmt.Errorf("no response within %s", maxSilence)
	}
	return w, err
}

// unacknowledged returns the regions that must still acknowledge their weights.
func unacknowledged(w *adminapi.RegionWeights) (names []string) {
	for _, m := range w.Regions {
		if !m.Acknowledged && !m.Dead {
			names = append(names, m.Name)
		}
	}
	return names
}

// pendingText returns which regions prevent larger shares.
func pendingText(w *adminapi.RegionWeights) string {
	names, have := "all regions", "have"
	if missing := unacknowledged(w); len(missing) > 0 {
		names = wording.List(missing)
		if len(missing) == 1 {
			have = "has"
		}
	}
	return fmt.Sprintf("no region has a larger share until %s %s acknowledged the change", names, have)
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

func (r *weightsReport) text() string {
	total := int64(0)
	for _, m := range r.Regions {
		total += m.Weight
	}
	rows := [][]string{{"REGION", "WEIGHT", "SHARE", "CONFIG", "STATUS"}}
	for _, m := range r.Regions {
		status := "not acknowledged"
		switch {
		case m.Acknowledged:
			status = "acknowledged"
		case m.Dead:
			status = "declared dead"
		}
		share := strconv.FormatFloat(100*float64(m.Weight)/float64(max(1, total)), 'f', 1, 64) + " %"
		rows = append(rows, []string{m.Name, number(m.Weight), share, number(m.ConfigWeight), status})
	}
	text := fmt.Sprintf("weights, change %d\n%s\n", r.Serial, wording.Table("", rows...))
	if r.Since == nil {
		text += "Regions that lose weight have their smaller share; " + pendingText(&r.RegionWeights) + ".\n"
	} else {
		rows = [][]string{{"LIMIT", "NEW SHARES FROM"}}
		for _, g := range r.Grown {
			rows = append(rows, []string{g.Limit, timeText(g.At)})
		}
		text += "Regions that lose weight have their smaller share now, and the others their larger one:\n" + wording.Table("", rows...)
	}
	if len(r.Notes) > 0 {
		text += "\n" + notesText(r.Notes)
	}
	return text
}
