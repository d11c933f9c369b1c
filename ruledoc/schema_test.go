package ruledoc

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
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

// valuesOf returns the documents of a file as the schema sees them, parsed by the YAML library alone.
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

// notInSchema are the bad files whose errors a schema cannot express: they depend on other parts of the file, or on the
// syntax of a text.
var notInSchema = []string{
	"cidr.yaml", "condition_key.yaml", "condition_name.yaml", "condition_place.yaml", "condition_regexp.yaml", "id_used_twice.yaml", "key_hash.yaml",
	"path.yaml",
	// The library accepts tags and merge keys.
	"condition_tag.yaml", "merge_key.yaml",
}

func TestSchemaRejectsBad(t *testing.T) {
	t.Parallel()
	compiled := compiledSchema(t)
	seen := 0
	for name, data := range fixtures(t, "bad") {
		values, err := valuesOf(data)
		if err != nil || len(values) == 0 {
			continue // not YAML, so there is nothing to validate
		}
		err = compiled.Validate(values[0])
		switch exempt := slices.Contains(notInSchema, name); {
		case err == nil && !exempt:
			t.Errorf("%s: the schema accepts it", name)
		case err != nil && exempt:
			t.Errorf("%s: the schema rejects it, remove it from notInSchema: %v", name, err)
		}
		seen++
	}
	if seen < 30 {
		t.Errorf("only %d files were validated", seen)
	}
}

// TestSchemaFile checks that schema.json, which editors load by its address, is up to date.
func TestSchemaFile(t *testing.T) {
	t.Parallel()
	if *update {
		if err := os.WriteFile("schema.json", Schema(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file, Schema()) {
		t.Error("schema.json is out of date: run with -update")
	}
}

// TestDocumentationHasTheFields checks that the tables of docs/rules.md are up to date.
func TestDocumentationHasTheFields(t *testing.T) {
	t.Parallel()
	const file = "../docs/rules.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	for name, rows := range map[string]string{
		"document": documentKeys.rows(), "rule": ruleKeys.rows(), "limit": limitKeys.rows(), "cost": costKeys.rows(), "cost_entry": costEntryKeys.rows(), "pattern": patternKeys.rows(),
		"match": matchKeys.rows(), "override": overrideKeys.rows(), "exemption": exemptionKeys.rows(), "flat": flatKeys.rows(),
	} {
		begin, end := "<!-- keys of "+name+" -->\n", "<!-- end -->"
		before, rest, found := strings.Cut(got, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("%s has no table between %q and %q", file, begin, end)
		}
		got = before + begin + "\n| key | description | default |\n|---|---|---|\n" + rows + "\n" + end + after
	}
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if got != string(text) {
		t.Errorf("the tables of %s are out of date: run with -update", file)
	}
}

// rows returns the keys as rows of a table in Markdown.
func (o *object[T]) rows() string {
	var b strings.Builder
	for _, f := range o.fields {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.key, f.doc, f.unset)
	}
	return b.String()
}
