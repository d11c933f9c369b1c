package offenders

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

const (
	// maxAttributes and maxValue bound the stored attributes of a subject: their number, and the length of a value in bytes.
	maxAttributes = 8
	maxValue      = 255
)

// encodeName returns attributes as JSON text, which keeps no references to them.
func encodeName(a headgate.Attributes) string {
	if len(a) == 0 {
		return ""
	}
	kept := headgate.Attributes{}
	for _, name := range slices.Sorted(maps.Keys(a))[:min(len(a), maxAttributes)] {
		value := a[name]
		if strings.HasPrefix(name, "cookie.") { // they are credentials
			value = headgate.EnsureKeyHash(value)
		}
		kept[name[:min(len(name), maxValue)]] = value[:min(len(value), maxValue)]
	}
	text, _ := json.Marshal(kept) // strings can always be encoded
	return string(text)
}

// decodeName returns the attributes of a name, or nil if it is empty.
func decodeName(name string) (a headgate.Attributes) {
	_ = json.Unmarshal([]byte(name), &a) // the name is empty or from encodeName
	return a
}
