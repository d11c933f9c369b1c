package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/server/adminclient"
	"github.com/spf13/cobra"
)

// removeReport is the JSON of "override rm", "exempt rm" and "token rm".
type removeReport struct {
	Removed []string `json:"removed"`

	what string
}

// newRemove returns the rm command for overrides, exemptions or tokens.
func newRemove(p *program, what, path string) *cobra.Command {
	return p.serverCommand(&cobra.Command{
		Use:     "rm ID... --server ADDRESS",
		Short:   fmt.Sprintf("Remove %ss by ID", what),
		Example: fmt.Sprintf("  headgate %s rm 17 --server https://gate:8083", commandName(what)),
		Args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, c *adminclient.Client, ids []string) (report, error) {
		r := removeReport{Removed: []string{}, what: what}
		for _, id := range ids {
			if _, err := strconv.ParseInt(id, 10, 64); err != nil {
				return nil, &usageError{fmt.Errorf("invalid ID %q: list the IDs with headgate %s list", id, commandName(what))}
			}
		}
		for _, id := range ids {
			if err := c.Remove(ctx, path, id); err != nil {
				if len(r.Removed) > 0 {
					err = fmt.Errorf("%w; the IDs before it were removed", err)
				}
				return nil, p.finish(&r, err)
			}
			r.Removed = append(r.Removed, id)
		}
		return &r, nil
	})
}

func (r *removeReport) text() string {
	var b strings.Builder
	for _, id := range r.Removed {
		b.WriteString(r.what + " " + id + " removed\n")
	}
	return b.String()
}

// commandName returns the command that manages this kind of object.
func commandName(what string) string {
	if what == "exemption" {
		return "exempt"
	}
	return what
}
