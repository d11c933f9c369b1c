package offenders

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

const (
	// maxAttributes and maxValue bound what is kept of a subject's attributes: that many, cut off at so many bytes.
	maxAttributes = 8
	maxValue      = 255
)

// encodeName is attributes as one JSON text, which has nothing of theirs alive.
func encodeName(a headgate.Attributes) string {
	if len(a) == 0 {
		return ""
	}
	kept := headgate.Attributes{}
	for _, name := range slices.Sorted(maps.Keys(a))[:min(len(a), maxAttributes)] {
		value := a[name]
		if strings.HasPrefix(name, "cookie.") { // which open doors
			value = headgate.EnsureKeyHash(value)
		}
		kept[name[:min(len(name), maxValue)]] = value[:min(len(value), maxValue)]
	}
	text, _ := json.Marshal(kept) // strings can always be written
	return string(text)
}

// decodeName is what encodeName was given; nil if that was nothing.
func decodeName(name string) (a headgate.Attributes) {
	_ = json.Unmarshal([]byte(name), &a) // it is nothing, or what encodeName made
	return a
}
