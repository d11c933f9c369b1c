package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/server/adminapi"
	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/headgate/headgate/internal/server/wording"
)

// regionsReport is the JSON of "regions".
type regionsReport struct {
	adminapi.RegionsStatus
	Notes []string `json:"notes"`
}

func newRegions(p *program) *cobra.Command {
	cmd := p.serverCommand(&cobra.Command{
		Use:   "regions --server ADDRESS",
		Short: "Show the regions that share limits: who responds, shares, and units lent and borrowed",
		Long: `Show all regions as the servers of one region see them: their weights and shares, whether they respond, the round trip, the
difference between the clocks of their Redis, and whether they have the same members and weights; and how many units of shared
limits the servers of this region have lent, borrowed and lost since they started. A note says whether a change of weights is still under
way.

To see the other direction, query a server of the other region.

Exit codes:
  0  all regions respond and have the same members and weights
  1  a region is down or has other members, weights or another secret, or a server of this region did not respond
  2  the server cannot be queried, or has no other regions`,
		Example: "  headgate regions --server https://gate:8083 --token-file token",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *adminclient.Client, _ []string) (report, error) {
		status, err := c.Regions(ctx)
		if err != nil {
			return nil, err
		}
		r := &regionsReport{RegionsStatus: status}
		r.Notes = r.notes()
		return r, failUnless(r.healthy())
	})
	cmd.AddCommand(newRegionsWeight(p), newRegionsDrain(p), newRegionsRestore(p))
	return cmd
}

// healthy reports whether nothing is wrong.
func (r *regionsReport) healthy() bool {
	return r.Problem == "" && len(r.Unreached) == 0 &&
		!slices.ContainsFunc(r.Members, func(m adminapi.RegionMember) bool { return !m.Up || m.Problem != "" })
}

func (r *regionsReport) text() string {
	down := 0
	rows := [][]string{{"REGION", "WEIGHT", "SHARE", "STATUS", "RTT", "LAST CONTACT", "CLOCK", "MEMBERS", "VERSION", "ADDRESS"}}
	var problems strings.Builder
	for i := range r.Members {
		m := &r.Members[i]
		if !m.Up {
			down++
		}
		rows = append(rows, r.row(m))
		if m.Problem != "" {
			fmt.Fprintf(&problems, "%s: %s\n", m.Name, printable(m.Problem))
		}
	}
	for _, u := range r.Unreached {
		fmt.Fprintf(&problems, "%s: not reached by %s: %s\n", u.Region, printable(u.Node), printable(u.Problem))
	}
	text := fmt.Sprintf("region %s; %s, %d down; %d of %s of this region responded\n%s", r.Region, wording.Count(len(r.Members), "region"), down,
		r.Replied, wording.Count(r.Nodes, "server"), wording.Table("", rows...))
	if problems.Len() > 0 {
		text += "\n" + problems.String()
	}
	text += "\n" + r.loans()
	if len(r.Notes) > 0 {
		text += "\n" + notesText(r.Notes)
	}
	return text
}

// row returns the line of a region.
func (r *regionsReport) row(m *adminapi.RegionMember) []string {
	const none = "–"
	name, status, members, rtt, contact, clock := m.Name, "up", unknown, none, "never", unknown
	if !m.Up {
		status = "down"
	}
	if m.SameMembers != nil {
		members = map[bool]string{true: "same", false: "differ"}[*m.SameMembers]
	}
	if m.RTT != nil {
		rtt = milliseconds(*m.RTT)
	}
	if m.LastContact != nil {
		contact = max(0, r.At.Sub(*m.LastContact)).Round(time.Second).String() + " ago"
	}
	if m.ClockAhead != nil {
		if clock = milliseconds(*m.ClockAhead); *m.ClockAhead >= 0 {
			clock = "+" + clock
		}
	}
	if m.Own {
		name, contact, clock = name+" (this region)", none, none
	}
	version := m.Version
	if version == "" {
		version = unknown
	}
	share := strconv.FormatFloat(m.Share, 'f', 1, 64) + " %"
	return []string{name, number(m.Weight), share, status, rtt, contact, clock, members, printable(version), m.Address}
}

func milliseconds(seconds float64) string {
	return strconv.FormatFloat(1000*seconds, 'f', 1, 64) + " ms"
}

// loans returns what the servers of this region have lent and borrowed.
func (r *regionsReport) loans() string {
	l := &r.Loans
	rejected, reasons := int64(0), []string{}
	for _, reason := range slices.Sorted(maps.Keys(l.Rejected)) {
		if n := l.Rejected[reason]; n > 0 {
			rejected += n
			reasons = append(reasons, printable(reason)+" "+wording.Number(n))
		}
	}
	why := ""
	if len(reasons) > 0 {
		why = " (" + strings.Join(reasons, ", ") + ")"
	}
	units := func(n int64) string { return wording.Count(int(n), "unit") }
	return "Since the servers of this region started\n" + wording.Table("  ",
		[]string{"borrowed", units(l.Borrowed)},
		[]string{"lent", units(l.Lent)},
		[]string{"lost", units(l.Lost)},
		[]string{"loan requests sent", fmt.Sprintf("%s, %s unanswered, %s skipped", wording.Number(l.Requests), wording.Number(l.Unanswered), wording.Number(l.Skipped))},
		[]string{"loan requests rejected", wording.Number(rejected) + why})
}

// notes returns what to do next.
func (r *regionsReport) notes() []string {
	notes := []string{}
	if r.Problem != "" {
		missing := ""
		if len(r.Missing) > 0 {
			missing = ": " + printable(wording.List(r.Missing))
		}
		notes = append(notes, "units and requests are incomplete: "+printable(r.Problem)+missing)
	}
	if note := changeNote(r.Weights); note != "" {
		notes = append(notes, note)
	}
	var down []string
	share := 0.0
	for i := range r.Members {
		if m := &r.Members[i]; !m.Up {
			down = append(down, m.Name)
			share += m.Share
		}
	}
	if len(down) > 0 {
		are := "it is"
		if len(down) > 1 {
			are = "they are"
		}
		notes = append(notes, fmt.Sprintf("limits that regions share lack the share of %s, %.1f %%, until %s up: run headgate doctor --config "+
			"/etc/headgate/config.yaml on a server of this region, then query a server of %s", wording.List(down), share, are, down[0]))
	}
	if slices.ContainsFunc(r.Members, func(m adminapi.RegionMember) bool { return m.SameMembers != nil && !*m.SameMembers }) {
		notes = append(notes, "regions with other members, weights or secrets lend each other nothing, and may allow more than the limit: "+
			"write the same regions.members and secret_file in the configs of all regions, and restart their servers")
	}
	return notes
}

// changeNote returns the state of a change of weights, or "" if shares are those of the newest weights for all limits.
func changeNote(w *adminapi.RegionWeights) string {
	switch {
	case w == nil || w.Serial == 0:
		return ""
	case w.Since == nil:
		return fmt.Sprintf("weights changed (change %d): %s", w.Serial, pendingText(w))
	}
	var later []string
	for _, g := range w.Grown {
		if g.At.After(w.At) {
			later = append(later, "of a "+g.Limit+" from "+timeText(g.At))
		}
	}
	if len(later) == 0 {
		return ""
	}
	return fmt.Sprintf("weights changed (change %d), acknowledged by all regions: larger shares %s", w.Serial, wording.List(later))
}
