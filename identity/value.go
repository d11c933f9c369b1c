package identity

import (
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate"
)

// Bounds of the attributes of a request.
const (
	// maxAttributes caps the number of attributes of a request. The built-in attributes come first, then the requested names in
	// their order.
	maxAttributes = 64
	// maxName is the length of the longest attribute name that is looked up.
	maxName = 128
	// MaxValue is the maximum length of a value in bytes. A longer value that identifies clients is replaced by its hash, so that
	// distinct values stay distinct. A longer text, such as user_agent, is cut.
	MaxValue = 256
)

// bounded returns a value that identifies clients, replaced by its hash if it is longer than MaxValue.
func bounded(value string) string {
	if value = strings.TrimSpace(value); len(value) > MaxValue {
		return headgate.HashKey(value)
	}
	return value
}

// cut returns a text that people read, cut to at most length bytes.
func cut(text string, length int) string {
	if text = strings.TrimSpace(text); len(text) <= length {
		return text
	}
	for length > 0 && !utf8.RuneStart(text[length]) {
		length--
	}
	return text[:length]
}

// put sets an attribute, unless its value is empty or there are already maxAttributes.
func put(attrs headgate.Attributes, name, value string) {
	if value != "" && len(attrs) < maxAttributes {
		attrs[name] = value
	}
}
