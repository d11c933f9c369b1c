package offenders

import (
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

// encodeName is attributes in one string, which has nothing of theirs alive: names and values by turns, each behind a byte with its
// length.
func encodeName(a headgate.Attributes) string {
	var room [256]byte
	b := room[:0]
	for i, name := range slices.Sorted(maps.Keys(a)) {
		if i == maxAttributes {
			break
		}
		value := a[name]
		if strings.HasPrefix(name, "cookie.") { // which open doors
			value = headgate.EnsureKeyHash(value)
		}
		for _, part := range [2]string{name, value} {
			part = part[:min(len(part), maxValue)]
			b = append(b, byte(len(part)))
			b = append(b, part...)
		}
	}
	return string(b)
}

// decodeName is what encodeName was given; nil if that was nothing.
func decodeName(name string) headgate.Attributes {
	if name == "" {
		return nil
	}
	a := headgate.Attributes{}
	for name != "" {
		end := 1 + int(name[0])
		key := name[1:end]
		name = name[end:]
		end = 1 + int(name[0])
		a[key] = name[1:end]
		name = name[end:]
	}
	return a
}
