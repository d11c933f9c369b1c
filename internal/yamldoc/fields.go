package yamldoc

import "slices"

// Field is a key of a mapping and how its value is read, by the decoder D into a T.
type Field[D, T any] struct {
	Key  string
	Read func(d D, n *Node, key string, into *T)
}

// embedder is a decoder that embeds Decoder, or Decoder itself.
type embedder interface{ base() *Decoder }

func (d *Decoder) base() *Decoder { return d }

// Fields reads a mapping by a table. What is the mapping in errors.
func Fields[D embedder, T any](decoder D, n *Node, what string, table []Field[D, T], into *T) {
	d := decoder.base()
	if n.Kind != Mapping {
		d.Bad(n, "%s wants keys and values, not %s", what, n.Describe())
		return
	}
	for _, e := range n.Entries {
		i := slices.IndexFunc(table, func(f Field[D, T]) bool { return f.Key == e.Key.Text })
		if i < 0 {
			d.unknown(e.Key, what, Keys(table))
		} else if d.Given(e) {
			table[i].Read(decoder, e.Value, e.Key.Text, into)
		}
	}
}

// Keys are those of a table.
func Keys[D, T any](table []Field[D, T]) []string {
	keys := make([]string, len(table))
	for i, f := range table {
		keys[i] = f.Key
	}
	return keys
}
