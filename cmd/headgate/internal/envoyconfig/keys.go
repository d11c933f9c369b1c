package envoyconfig

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/yamldoc"
)

// knownKeys are those of all parts of a config. The service takes each of them everywhere, and ignores it where it has
// no meaning.
func knownKeys() []string {
	return slices.Concat(yamldoc.Keys(configFields()), yamldoc.Keys(descriptorFields()), yamldoc.Keys(limitFields()))
}

// fields reads a mapping as the service does: a key without a value is as good as absent. It returns the keys that the
// table lacks, for the importer to name. Only a misspelt key is an error, since the service rejects it too; a key that no
// known one resembles may be of a newer release.
func fields[T any](d *decoder, n *node, what string, table []field[T], into *T) (odd []*node) {
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
			odd = append(odd, e.Key)
		case yamldoc.Nearest(key, own) != "":
			read.Entries = append(read.Entries, e)
		case yamldoc.Nearest(key, known) != "":
			d.Bad(e.Key, "unknown key %q; did you mean %q?", yamldoc.Shorten(key), yamldoc.Nearest(key, known))
		default:
			odd = append(odd, e.Key)
		}
	}
	yamldoc.Fields(d, &read, what, table, into)
	return odd
}

// oddity says what becomes of a key that its place does not have.
func oddity(key *node) string {
	if slices.Contains(knownKeys(), key.Text) {
		return fmt.Sprintf("%s has no effect in this place, there as here: move it to where it belongs, or remove it", key.Text)
	}
	return fmt.Sprintf("unknown key %q is not carried over, and the limit may differ from what it is there: look up what it "+
		"does in your release, and write that into the rule", yamldoc.Shorten(key.Text))
}
