package yamldoc

import (
	"slices"
	"strconv"
)

// Kind is the type of a value.
type Kind uint8

// The kinds of values. Null is also the value of a key without a value.
const (
	Null Kind = iota
	Text
	Number
	Boolean
	List
	Mapping
)

// String returns the kind's name in errors.
func (k Kind) String() string {
	return [...]string{"nothing", "text", "a number", "true or false", "a list", "a mapping"}[k]
}

// style is how a text is quoted, which Locate needs to find its characters in the file.
type style uint8

const (
	plain style = iota
	singleQuoted
	doubleQuoted
	block
)

// Node is a value of a document with the position of its first character.
type Node struct {
	Kind         Kind
	Line, Column int
	// Text is the source text of a text, number or boolean.
	Text string
	// Items of a list and Entries of a mapping are in document order.
	Items   []*Node
	Entries []Entry

	style style
	index map[string]int // key to index in Entries; only if there are manyEntries
	size  int            // nodes in this tree, with aliases expanded
}

// Entry is a key of a mapping with its value.
type Entry struct{ Key, Value *Node }

// Get returns the entry with this key.
func (n *Node) Get(key string) (Entry, bool) {
	if n.index != nil {
		if i, ok := n.index[key]; ok {
			return n.Entries[i], true
		}
		return Entry{}, false
	}
	for _, e := range n.Entries {
		if e.Key.Text == key {
			return e, true
		}
	}
	return Entry{}, false
}

// manyEntries is the number of entries from which on a mapping has an index.
const manyEntries = 16

// add appends an item, or an entry if key is not nil. If two entries have the same key, Get finds the first.
func (n *Node) add(key, value *Node) {
	n.size = min(n.size+1+value.size, maxNodes+1)
	if key == nil {
		n.Items = append(n.Items, value)
		return
	}
	n.Entries = append(n.Entries, Entry{key, value})
	if len(n.Entries) < manyEntries {
		return
	}
	if n.index == nil {
		n.index = map[string]int{}
		for i, e := range slices.Backward(n.Entries) {
			n.index[e.Key.Text] = i
		}
	} else if _, twice := n.index[key.Text]; !twice {
		n.index[key.Text] = len(n.Entries) - 1
	}
}

// At follows a path of keys as far as it exists and returns the value there.
func (n *Node) At(path []string) *Node {
	for _, key := range path {
		next := n.item(key)
		if e, ok := n.Get(key); ok {
			next = e.Value
		}
		if next == nil {
			break
		}
		n = next
	}
	return n
}

// item returns the item of a list by its index, or nil.
func (n *Node) item(index string) *Node {
	if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(n.Items) {
		return n.Items[i]
	}
	return nil
}

// Find works like At, but returns the key if the value is null or begins on another line, because an error is easier to find at
// the key.
func (n *Node) Find(path []string) *Node {
	found := n
	for _, key := range path {
		if item := n.item(key); item != nil {
			n, found = item, item
			continue
		}
		e, ok := n.Get(key)
		if !ok {
			break
		}
		n, found = e.Value, e.Value
		if n.Line != e.Key.Line || n.Kind == Null {
			found = e.Key
		}
	}
	return found
}

// Without returns a copy of a mapping without the keys that drop selects.
func (n *Node) Without(drop func(key string) bool) *Node {
	rest := *n
	rest.index = nil
	rest.Entries = slices.DeleteFunc(slices.Clone(n.Entries), func(e Entry) bool { return drop(e.Key.Text) })
	return &rest
}

// Describe returns the value as errors quote it.
func (n *Node) Describe() string {
	switch n.Kind {
	case Text:
		return strconv.Quote(Shorten(n.Text))
	case Number, Boolean:
		return Shorten(n.Text)
	}
	return n.Kind.String()
}
