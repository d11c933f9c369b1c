package yamldoc

import "slices"

// Field is a key of a mapping and the function with which decoder D decodes its value into a T.
type Field[D, T any] struct {
	Key  string
	Read func(d D, n *Node, key string, into *T)
}

// embedder is Decoder, or a decoder that embeds it.
type embedder interface{ base() *Decoder }

func (d *Decoder) base() *Decoder { return d }

// Fields decodes a mapping with a table of its keys. Errors name the mapping by what.
func Fields[D embedder, T any](decoder D, n *Node, what string, table []Field[D, T], into *T) {
	d := decoder.base()
	if n.Kind != Mapping {
		d.Bad(n, "%s must be a mapping of keys to values, not %s", what, n.Describe())
		return
	}
	for _, e := range n.Entries {
		i := slices.IndexFunc(table, func(f Field[D, T]) bool { return f.Key == e.Key.Text })
		if i < 0 {
			d.unknown(e.Key, what, Keys(table))
		} else if d.HasValue(e) {
			table[i].Read(decoder, e.Value, e.Key.Text, into)
		}
	}
}

// Keys returns the keys of a table.
func Keys[D, T any](table []Field[D, T]) []string {
	keys := make([]string, len(table))
	for i, f := range table {
		keys[i] = f.Key
	}
	return keys
}
