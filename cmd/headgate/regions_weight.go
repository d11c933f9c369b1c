package main

import (
	"context"
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
)

const weightsExitCodes = `

Exit codes:
  0  all regions have acknowledged the change
  1  a region has not acknowledged it yet
  2  nothing was changed, or the server cannot be queried`

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
	if err == nil && !ok {
		err = &exitError{1, "nothing was changed"}
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
	if err != nil {
		return nil, err
	}
	serial := w.Serial
	for end := time.Now().Add(ackTimeout); w.Since == nil && w.Serial == serial && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(ackEvery):
		}
		if next, err := c.Weights(ctx); err == nil { // the change does not depend on this server
			w = next
		}
	}
	return &weightsReport{w}, failUnless(w.Since != nil)
}

// weightsReport is the JSON of the commands that change weights.
type weightsReport struct{ adminapi.RegionWeights }

func (r *weightsReport) text() string {
	total := int64(0)
	for _, m := range r.Regions {
		total += m.Weight
	}
	rows, missing := [][]string{{"REGION", "WEIGHT", "SHARE", "CONFIG", "STATUS"}}, []string(nil)
	for _, m := range r.Regions {
		status := "acknowledged"
		switch {
		case m.Acknowledged:
		case m.Dead:
			status = "declared dead"
		default:
			status = "not acknowledged"
			missing = append(missing, m.Name)
		}
		share := strconv.FormatFloat(100*float64(m.Weight)/float64(max(1, total)), 'f', 1, 64) + " %"
		rows = append(rows, []string{m.Name, number(m.Weight), share, number(m.ConfigWeight), status})
	}
	text := fmt.Sprintf("weights, change %d\n%s\n", r.Serial, wording.Table("", rows...))
	if r.Since == nil {
		return text + fmt.Sprintf("Regions that lose weight have their smaller share. No region has a larger one until %s has acknowledged the change:\n"+
			"check that its servers run and reach the other regions and their Redis. If no server of it runs, drain it with --dead; to go back, set the\n"+
			"weights as they were.\n", strings.Join(missing, ", "))
	}
	rows = [][]string{{"LIMIT", "NEW SHARES FROM"}}
	for _, g := range r.Grown {
		rows = append(rows, []string{g.Limit, g.At.Format("2006-01-02 15:04:05 MST")})
	}
	return text + "Regions that lose weight have their smaller share now, and the others their larger one:\n" + wording.Table("", rows...)
}
