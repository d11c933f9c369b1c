package identity

import (
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate"
)

// Bounds of what a request can put into attributes.
const (
	// maxAttributes is how many attributes a request has at most. The built-in ones come first, then those asked for, in
	// the order of asking.
	maxAttributes = 64
	// maxName is the length of the longest attribute name that is looked up.
	maxName = 128
	// MaxValue is the length of the longest value. A longer one that tells clients apart is replaced by its hash, so that
	// distinct values stay distinct; a longer text, as user_agent is, is cut.
	MaxValue = 256
)

// bounded is for values that tell clients apart.
func bounded(value string) string {
	if value = strings.TrimSpace(value); len(value) > MaxValue {
		return headgate.HashKey(value)
	}
	return value
}

// cut is for texts that are read rather than counted by.
func cut(text string, length int) string {
	if text = strings.TrimSpace(text); len(text) <= length {
		return text
	}
	for length > 0 && !utf8.RuneStart(text[length]) {
		length--
	}
	return text[:length]
}

// put leaves out what is empty, and what is too much.
func put(attrs headgate.Attributes, name, value string) {
	if value != "" && len(attrs) < maxAttributes {
		attrs[name] = value
	}
}
