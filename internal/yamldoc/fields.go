package yamldoc

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
		if f := lookUp(table, e.Key.Text); f != nil {
			if d.Given(e) {
				f.Read(decoder, e.Value, e.Key.Text, into)
			}
			continue
		}
		d.unknown(e.Key, what, Keys(table))
	}
}

func lookUp[D, T any](table []Field[D, T], key string) *Field[D, T] {
	for i := range table {
		if table[i].Key == key {
			return &table[i]
		}
	}
	return nil
}

// Keys are those of a table.
func Keys[D, T any](table []Field[D, T]) []string {
	keys := make([]string, len(table))
	for i, f := range table {
		keys[i] = f.Key
	}
	return keys
}
