package ruledoc

import (
	"bytes"
	_ "embed" // for schema.json
)

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema of a rule file, for editors and other programs. It knows the keys, words and shapes; Parse
// knows the rest.
func Schema() []byte { return bytes.Clone(schema) }
