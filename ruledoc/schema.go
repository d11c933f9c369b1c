package ruledoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate"
)

// Schema returns the JSON Schema of a rule file, for editors and other programs; schema.json holds the same. It describes keys,
// enums and types; Parse checks the rest.
func Schema() []byte {
	compact := fmt.Appendf(nil, schemaFrame, documentKeys.properties(), definitions())
	var b bytes.Buffer
	if err := json.Indent(&b, compact, "", "  "); err != nil {
		panic(fmt.Errorf("ruledoc: the schema of a field is not JSON: %w", err))
	}
	b.WriteByte('\n')
	return b.Bytes()
}

const schemaFrame = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"$id": "https://raw.githubusercontent.com/headgate/headgate/main/ruledoc/schema.json",
	"title": "Headgate rules",
	"description": "Rate limit rules. All rules that match a request apply to it.",
	"type": "object",
	"properties": {"$schema": {"type": "string", "description": "Address of this schema, for editors of JSON files."}, %s},
	"patternProperties": {"^x-": {"description": "Ignored: for anchors and for other programs."}},
	"additionalProperties": false,
	"$defs": {%s}
}`

// otherAttributes matches the names of attributes that are not built in.
const otherAttributes = `^(header\.[^A-Z]+|(cookie|claim|descriptor)\..+)$`

// definitions returns the definitions that the fields refer to.
func definitions() string {
	limitOrLimits := `"anyOf": ` + required("limit", "limits")
	patterns := []string{matchKeys.properties()}
	for _, name := range headgate.BuiltIn() {
		patterns = append(patterns, fmt.Sprintf(`%q: {"$ref": "#/$defs/pattern"%s}`, name, matchDoc(name)))
	}
	return strings.Join([]string{
		`"rule": ` + mappingSchema(ruleKeys.properties(), fmt.Sprintf(`"required": ["id"], "if": {"required": ["counter"]},
			"then": {"propertyNames": {"enum": %s}, "properties": {"mode": {"enum": %s}}}, "else": {"required": ["by"], %s}`,
			jsonOf(borrowerKeys), jsonOf(namesOf(headgate.Enforce, headgate.Off)), limitOrLimits)),
		fmt.Sprintf(`"attribute": {"type": "string", "anyOf": [{"enum": %s}, {"pattern": %q}], "description": %s}`,
			jsonOf(headgate.BuiltIn()), otherAttributes, plainText("a built-in attribute, or one with a source prefix: "+
				"header.x-app, cookie.x, claim.x, descriptor.x; client is the api_key, or else the user, or else the ip")),
		`"match": ` + mappingSchema(strings.Join(patterns, ", "),
			fmt.Sprintf(`"patternProperties": {%q: {"$ref": "#/$defs/pattern"}}`, otherAttributes)),
		`"pattern": {"anyOf": [{"$ref": "#/$defs/texts"}, ` + mappingSchema(patternKeys.properties(), `"minProperties": 1`) + `],
			"description": "A value, a list of values, or {in, not, prefix, cidr, absent}."}`,
		`"texts": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string", "minLength": 1}}]}`,
		fmt.Sprintf(`"rate": {"type": "string", "pattern": "^ *[0-9][0-9_]* */ *([0-9][0-9_]*)? *(%s) *$"}`,
			strings.Join(slices.Sorted(maps.Keys(units)), "|")),
		`"concurrent": {"type": "string", "pattern": "^ *[0-9][0-9_]* +concurrent( *,? *lease +[0-9.nuµmsh]+)? *$"}`,
		`"limit": {"anyOf": [{"$ref": "#/$defs/rate"}, {"$ref": "#/$defs/concurrent"}, ` + mappingSchema(limitKeys.properties(), `"oneOf": [
			{"required": ["rate"], "not": {"anyOf": `+required("calendar", "timezone", "anchor_day", "concurrent", "lease")+`}},
			{"required": ["quota", "calendar"], "not": {"anyOf": `+required("burst", "align", "concurrent", "lease")+`}},
			{"required": ["concurrent"], "propertyNames": {"enum": `+jsonOf(concurrentKeys)+`}}]`) + `]}`,
		`"limits": {"type": "object", "propertyNames": {"pattern": "^[A-Za-z0-9_.-]+$", "maxLength": 64},
			"additionalProperties": {"$ref": "#/$defs/limit"}}`,
		`"plan": {"anyOf": [{"$ref": "#/$defs/rate"}, {"$ref": "#/$defs/concurrent"}, ` + mappingSchema(planKeys.properties(), `"minProperties": 1`) + `]}`,
		fmt.Sprintf(`"algorithm": {"enum": %s, "default": %q}`,
			jsonOf(slices.Concat(algorithmNames, slices.Sorted(maps.Keys(algorithmAliases)))), algorithmNames[0]),
		`"cost": {"anyOf": [{"type": "integer", "minimum": 1, ` + countSchema + `}, ` + mappingSchema(costKeys.properties(), "") + `]}`,
		`"cost_entry": ` + mappingSchema(costEntryKeys.properties(), `"required": ["match", "cost"]`),
		`"override": ` + mappingSchema(overrideKeys.properties(), `"required": ["rule", "subject"], `+limitOrLimits),
		`"exemption": ` + mappingSchema(exemptionKeys.properties(), `"oneOf": `+required("api_key", "user", "service_account", "ip_cidr")),
	}, ", ")
}

// required returns a list of schemas, each of which requires one of the keys.
func required(keys ...string) string {
	schemas := make([]string, len(keys))
	for i, key := range keys {
		schemas[i] = fmt.Sprintf(`{"required": [%q]}`, key)
	}
	return "[" + strings.Join(schemas, ", ") + "]"
}

// mappingSchema returns the schema of a mapping with these keys and no others. Rest is further members of the schema.
func mappingSchema(properties, rest string) string {
	if rest != "" {
		rest = ", " + rest
	}
	return fmt.Sprintf(`{"type": "object", "properties": {%s}%s, "additionalProperties": false}`, properties, rest)
}

// matchDoc returns the description of an attribute in match as a member of its schema, or "".
func matchDoc(name string) string {
	if doc := matchDocs[name]; doc != "" {
		return `, "description": ` + plainText(doc)
	}
	return ""
}
