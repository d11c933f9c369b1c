package envoyconfig

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/yamldoc"
)

// knownKeys returns the keys of all parts of a config. envoyproxy/ratelimit accepts each key everywhere, and ignores it where it has no
// effect.
func knownKeys() []string {
	return slices.Concat(yamldoc.Keys(configFields()), yamldoc.Keys(descriptorFields()), yamldoc.Keys(limitFields()))
}

// fields reads a mapping as envoyproxy/ratelimit does: a key without a value is treated as absent. It returns the keys that are not in
// the table, for the importer to report. Only a misspelt key is an error, because the service rejects it too; a key that resembles no
// known key may belong to a newer release.
func fields[T any](d *decoder, n *node, what string, table []field[T], into *T) (ignored []*node) {
	own, known := yamldoc.Keys(table), knownKeys()
	read := *n
	read.Entries = nil
	for _, e := range n.Entries {
		key := e.Key.Text
		switch {
		case slices.Contains(own, key):
			if e.Value.Kind != yamldoc.Null {
				read.Entries = append(read.Entries, e)
			}
		case slices.Contains(known, key):
			ignored = append(ignored, e.Key)
		case yamldoc.Nearest(key, own) != "":
			read.Entries = append(read.Entries, e)
		case yamldoc.Nearest(key, known) != "":
			d.Bad(e.Key, "unknown key %q; did you mean %q?", yamldoc.Shorten(key), yamldoc.Nearest(key, known))
		default:
			ignored = append(ignored, e.Key)
		}
	}
	yamldoc.Fields(d, &read, what, table, into)
	return ignored
}

// ignoredText describes the consequence of a key that is not in the table of its mapping.
func ignoredText(key *node) string {
	if slices.Contains(knownKeys(), key.Text) {
		return fmt.Sprintf("%s has no effect here, in envoyproxy/ratelimit and in Headgate: move it to where it belongs, or remove it", key.Text)
	}
	return fmt.Sprintf("unknown key %q not converted, the limit may behave differently: look up the key in your release of "+
		"envoyproxy/ratelimit, and adapt the rule", yamldoc.Shorten(key.Text))
}
