package yamldoc

import (
	"slices"
	"strconv"
)

// Kind is what a value of a document is.
type Kind uint8

// The kinds of values. Nothing is null, or a key without a value.
const (
	Nothing Kind = iota
	Text
	Number
	Boolean
	List
	Mapping
)

// String is the kind as errors call it.
func (k Kind) String() string {
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

// Node is a value of a document and where it begins.
type Node struct {
	Kind         Kind
	Line, Column int
	// Text of a text, number or boolean as it is written.
	Text string
	// Items of a list, and entries of a mapping, in the order of the document.
	Items   []*Node
	Entries []Entry

	style style
	index map[string]int // of a mapping with many entries
	size  int            // of the tree below it, aliases followed
}

// Entry is a key of a mapping with its value.
type Entry struct{ Key, Value *Node }

// Get is the entry with this key.
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

// manyEntries is from where on a mapping has an index.
const manyEntries = 16

// add adds an item, or an entry if there is a key. Of two entries with the same key, Get finds the first.
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

// At follows keys as far as they lead, and returns the value there.
func (n *Node) At(path []string) *Node {
	for _, key := range path {
		e, ok := n.Get(key)
		if !ok {
			break
		}
		n = e.Value
	}
	return n
}

// Find is like At, and returns the key instead if the value begins on another line or is not there: people look for the
// name of what is wrong.
func (n *Node) Find(path []string) *Node {
	found := n
	for _, key := range path {
		e, ok := n.Get(key)
		if !ok {
			break
		}
		n, found = e.Value, e.Value
		if n.Line != e.Key.Line || n.Kind == Nothing {
			found = e.Key
		}
	}
	return found
}

// Without is a mapping without some of its keys.
func (n *Node) Without(drop func(key string) bool) *Node {
	left := *n
	left.index = nil
	left.Entries = slices.DeleteFunc(slices.Clone(n.Entries), func(e Entry) bool { return drop(e.Key.Text) })
	return &left
}

// Describe is a value in errors.
func (n *Node) Describe() string {
	switch n.Kind {
	case Text:
		return strconv.Quote(Shorten(n.Text))
	case Number, Boolean:
		return Shorten(n.Text)
	}
	return n.Kind.String()
}
