package ruledoc

import (
	"strings"
	"time"

	"github.com/headgate/headgate/internal/yamldoc"
)

// zone decodes the name of a time zone.
func (d *decoder) zone(n *node, key string) *time.Location {
	s, ok := d.Text(n, key)
	if !ok {
		return nil
	}
	if zone, ok := d.cache.zones[s]; ok {
		return zone
	}
	zone, err := time.LoadLocation(s)
	if err != nil || s == "" || strings.EqualFold(s, "local") {
		d.Bad(n, "%s: unknown time zone %q: write a name like Europe/Berlin or UTC", key, yamldoc.Shorten(s))
		return nil
	}
	d.cache.zones[s] = zone
	return zone
}

// zone encodes a time zone; the default, UTC, is nil.
func (e *encoder) zone(where string, zone *time.Location) *node {
	if zone.String() == time.UTC.String() {
		return nil
	}
	if _, err := time.LoadLocation(zone.String()); err != nil || zone == time.Local {
		e.bad(where, "time zone %q cannot be encoded: use one with a name like Europe/Berlin", zone)
	}
	return e.text(where, zone.String())
}
