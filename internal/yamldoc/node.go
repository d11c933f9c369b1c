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

// child returns the value of a key, or the item of a list by its index, and the node to show in errors about it: the key if the value
// is null or begins on another line, because an error is easier to find there. Both are nil if there is none.
func (n *Node) child(key string) (value, shown *Node) {
	if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Items) {
		return n.Items[i], n.Items[i]
	}
	e, ok := n.Get(key)
	switch {
	case !ok:
		return nil, nil
	case e.Value.Line != e.Key.Line || e.Value.Kind == Null:
		return e.Value, e.Key
	}
	return e.Value, e.Value
}

// At follows a path of keys and indexes as far as it exists and returns the value there.
func (n *Node) At(path []string) *Node {
	value, _ := n.follow(path)
	return value
}

// Find works like At, but returns the node to show in errors.
func (n *Node) Find(path []string) *Node {
	_, shown := n.follow(path)
	return shown
}

func (n *Node) follow(path []string) (value, shown *Node) {
	value, shown = n, n
	for _, key := range path {
		next, at := value.child(key)
		if next == nil {
			break
		}
		value, shown = next, at
	}
	return value, shown
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
