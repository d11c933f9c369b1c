package ruledoc

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/yamldoc"
)

func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// valuesOf are the documents of a file as the schema sees them, read by the library alone.
func valuesOf(data []byte) ([]any, error) {
	data = bytes.ReplaceAll(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
	var all []any
	for _, part := range regexp.MustCompile(`(?m)^(---|\.\.\.)$`).Split(string(data), -1) {
		if strings.TrimSpace(part) == "" {
			continue
		}
		asJSON, err := yaml.YAMLToJSON([]byte(part))
		if err != nil {
			return nil, err
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		if err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, nil
}

func TestSchemaAcceptsGood(t *testing.T) {
	t.Parallel()
	compiled := compiledSchema(t)
	for name, data := range fixtures(t, "good") {
		values, err := valuesOf(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, value := range values {
			if err := compiled.Validate(value); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// beyondSchema are the bad files whose mistakes take more than a schema to see: they depend on something elsewhere in
// the file, or on what a text says.
var beyondSchema = []string{
	"cidr.yaml", "condition_key.yaml", "condition_name.yaml", "condition_place.yaml", "condition_regexp.yaml", "id_used_twice.yaml", "key_hash.yaml",
	"path.yaml",
	// The library reads a tag and a merge key as something else.
	"condition_tag.yaml", "merge_key.yaml",
}

func TestSchemaRefusesBad(t *testing.T) {
	t.Parallel()
	compiled := compiledSchema(t)
	seen := 0
	for name, data := range fixtures(t, "bad") {
		values, err := valuesOf(data)
		if err != nil || len(values) == 0 {
			continue // no YAML, so nothing for a schema to see
		}
		err = compiled.Validate(values[0])
		switch beyond := slices.Contains(beyondSchema, name); {
		case err == nil && !beyond:
			t.Errorf("%s: the schema sees nothing wrong with it", name)
		case err != nil && beyond:
			t.Errorf("%s: the schema does see it: %v", name, err)
		}
		seen++
	}
	if seen < 30 {
		t.Errorf("only %d files could be looked at", seen)
	}
}

// part is what the test needs to know of a schema.
type part struct {
	Properties  map[string]part `json:"properties"`
	Defs        map[string]part `json:"$defs"`
	AnyOf       []part          `json:"anyOf"`
	Enum        []string        `json:"enum"`
	Pattern     string          `json:"pattern"`
	Default     any             `json:"default"`
	Maximum     float64         `json:"maximum"`
	MaxLength   int             `json:"maxLength"`
	Description string          `json:"description"`
	Ref         string          `json:"$ref"`
}

func readSchema(t testing.TB) part {
	t.Helper()
	var p part
	if err := json.Unmarshal(Schema(), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSchemaHasTheKeys(t *testing.T) {
	t.Parallel()
	top := readSchema(t)
	defs := top.Defs
	tables := []struct {
		name string
		part part
		keys []string
	}{
		{"the top", top, append(yamldoc.Keys(topFields), "$schema")},
		{"rule", defs["rule"], yamldoc.Keys(ruleFields)},
		{"limit", defs["limit"].AnyOf[1], yamldoc.Keys(limitFields)},
		{"plan", defs["plan"].AnyOf[1], yamldoc.Keys(planFields)},
		{"cost", defs["cost"].AnyOf[1], yamldoc.Keys(costFields)},
		{"pattern", defs["pattern"].AnyOf[1], yamldoc.Keys(patternFields)},
		{"match", defs["match"], append(headgate.BuiltIn(), ignoreCase)},
		{"override", defs["override"], yamldoc.Keys(overrideFields)},
		{"exemption", defs["exemption"], yamldoc.Keys(exemptionFields)},
	}
	for _, table := range tables {
		got, want := slices.Sorted(maps.Keys(table.part.Properties)), slices.Sorted(slices.Values(table.keys))
		if !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %v, the code %v", table.name, got, want)
		}
	}
	for key, p := range defs["rule"].Properties {
		if p.Description == "" && p.Ref == "" {
			t.Errorf("rule: %s has no description", key)
		}
	}
}

func TestSchemaHasTheWords(t *testing.T) {
	t.Parallel()
	defs := readSchema(t).Defs
	rule, limit := defs["rule"].Properties, defs["limit"].AnyOf[1].Properties
	algorithms := slices.Concat(algorithmWords, slices.Sorted(maps.Keys(otherAlgorithmWords)))
	for name, words := range map[string][2][]string{
		"mode":             {defs["mode"].Enum, modeWords},
		"on_missing":       {rule["on_missing"].Enum, onMissingWords},
		"on_store_failure": {rule["on_store_failure"].Enum, onStoreFailureWords},
		"algorithm":        {defs["algorithm"].Enum, algorithms},
		"align":            {limit["align"].Enum, alignWords},
		"calendar":         {limit["calendar"].Enum, calendarWords},
		"attribute":        {defs["attribute"].AnyOf[0].Enum, headgate.BuiltIn()},
	} {
		if !slices.Equal(words[0], words[1]) {
			t.Errorf("%s: the schema has %v, the code %v", name, words[0], words[1])
		}
	}
	alternatives := regexp.MustCompile(`\((ms\|[a-z|]*)\)`).FindStringSubmatch(defs["rate"].Pattern)
	got, want := slices.Sorted(slices.Values(strings.Split(alternatives[1], "|"))), slices.Sorted(maps.Keys(units))
	if !slices.Equal(got, want) {
		t.Errorf("units: the schema has %v, the code %v", got, want)
	}
}

func TestSchemaHasTheDefaults(t *testing.T) {
	t.Parallel()
	defs := readSchema(t).Defs
	rule, limit, cost := defs["rule"].Properties, defs["limit"].AnyOf[1].Properties, defs["cost"].AnyOf[1].Properties
	var zero headgate.Rule
	for name, values := range map[string][2]any{
		"mode":             {defs["mode"].Default, zero.Mode.String()},
		"algorithm":        {defs["algorithm"].Default, zero.Limit.Algorithm.String()},
		"on_missing":       {rule["on_missing"].Default, zero.OnMissing.String()},
		"on_store_failure": {rule["on_store_failure"].Default, zero.OnStoreFailure.String()},
		"align":            {limit["align"].Default, alignWords[zero.Limit.Align]},
		"strict":           {rule["strict"].Default, zero.Strict},
		"critical":         {rule["critical"].Default, zero.Critical},
		"priority":         {rule["priority"].Default, float64(zero.Priority)},
		"cost.max":         {cost["max"].Default, float64(headgate.MaxCost)},
		"largest burst":    {limit["burst"].Maximum, float64(headgate.MaxCost)},
		"largest quota":    {limit["quota"].Maximum, float64(headgate.MaxCost)},
		"longest when":     {rule["when"].MaxLength, maxConditionRunes},
	} {
		if values[0] != values[1] {
			t.Errorf("%s: the schema has %v, the code %v", name, values[0], values[1])
		}
	}
}
