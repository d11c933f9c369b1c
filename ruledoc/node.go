package ruledoc

import "slices"

// kind is what a value of a document is.
type kind uint8

const (
	nothing kind = iota // null, or a key without a value
	text
	number
	boolean
	list
	mapping
)

// String is the kind as errors call it.
func (k kind) String() string {
	return [...]string{"nothing", "text", "a number", "true or false", "a list", "a mapping"}[k]
}

// style is how a text is written, which says where in the file each of its characters is.
type style uint8

const (
	plain style = iota
	singleQuoted
	doubleQuoted
	block
)

// node is a value of a document and where it begins.
type node struct {
	kind         kind
	style        style
	line, column int
	text         string // of a text, number or boolean as it is written
	items        []*node
	entries      []entry
	index        map[string]int // of a mapping with many entries
	size         int            // of the tree below it, aliases followed
}

type entry struct{ key, value *node }

// get is the entry with this key.
func (n *node) get(key string) (entry, bool) {
	if n.index != nil {
		if i, ok := n.index[key]; ok {
			return n.entries[i], true
		}
		return entry{}, false
	}
	for _, e := range n.entries {
		if e.key.text == key {
			return e, true
		}
	}
	return entry{}, false
}

// manyEntries is from where on a mapping has an index.
const manyEntries = 16

// add adds an item, or an entry if there is a key. Of two entries with the same key, get finds the first.
func (n *node) add(key, value *node) {
	n.size = min(n.size+1+value.size, maxNodes+1)
	if key == nil {
		n.items = append(n.items, value)
		return
	}
	n.entries = append(n.entries, entry{key, value})
	if len(n.entries) < manyEntries {
		return
	}
	if n.index == nil {
		n.index = map[string]int{}
		for i, e := range slices.Backward(n.entries) {
			n.index[e.key.text] = i
		}
	} else if _, twice := n.index[key.text]; !twice {
		n.index[key.text] = len(n.entries) - 1
	}
}

// at follows keys as far as they lead, and returns the value there.
func (n *node) at(path []string) *node {
	for _, key := range path {
		e, ok := n.get(key)
		if !ok {
			break
		}
		n = e.value
	}
	return n
}

// find is like at, and returns the key instead if the value begins on another line or is not there: people look for the
// name of what is wrong.
func (n *node) find(path []string) *node {
	found := n
	for _, key := range path {
		e, ok := n.get(key)
		if !ok {
			break
		}
		n, found = e.value, e.value
		if n.line != e.key.line || n.kind == nothing {
			found = e.key
		}
	}
	return found
}
