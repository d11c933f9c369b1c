package ruledoc

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/yamldoc"
)

// field is a key of a mapping in rule documents. It is the only description of the key: the decoder, the encoder, the
// schema, the documentation and (through the encoder) rulediff use it. To add a key, add a field to the type in package
// headgate with its behaviour, a line to one of the tables of fields (ruleKeys, limitKeys, …) and a line to
// testdata/good/every_key.yaml. go test ./ruledoc -update generates the rest.
type field[T any] struct {
	key string
	// doc describes the key in Markdown for docs/rules.md; the schema has the same as plain text.
	doc string
	// unset describes in Markdown what applies without the key.
	unset string
	// group is the key of the group that this key is validated with. An error in one key of a group hides errors of package
	// headgate about the others, which may only be consequences.
	group string
	// schema is the members of the value's JSON Schema without its description.
	schema string
	read   func(d *decoder, n *node, key string, into *T)
	// write returns the value, or nil if it is the default. What names the value in errors.
	write func(e *encoder, what string, from *T) *node
}

// object is the table of keys of one kind of mapping in rule documents.
type object[T any] struct {
	fields []field[T]
	table  []yamldoc.Field[*decoder, T]
}

func newObject[T any](fields ...field[T]) *object[T] {
	o := &object[T]{fields: fields}
	for _, f := range fields {
		o.table = append(o.table, yamldoc.Field[*decoder, T]{Key: f.key, Read: f.read})
	}
	return o
}

// field returns the field with this key, or nil.
func (o *object[T]) field(key string) *field[T] {
	if i := slices.IndexFunc(o.fields, func(f field[T]) bool { return f.key == key }); i >= 0 {
		return &o.fields[i]
	}
	return nil
}

// keys returns the names of the fields.
func (o *object[T]) keys() []string { return yamldoc.Keys(o.table) }

// read decodes a mapping. What names it in errors.
func (o *object[T]) read(d *decoder, n *node, what string, into *T) {
	yamldoc.Fields(d, n, what, o.table, into)
}

// write returns the mapping of all values that are not the default. Where names the mapping in errors; if it is "", errors
// name the key.
func (o *object[T]) write(e *encoder, where string, from *T) *node {
	n := mappingNode()
	for i := range o.fields {
		what := where
		if where == "" {
			what = o.fields[i].key
		}
		put(n, o.fields[i].key, o.fields[i].write(e, what, from))
	}
	return n
}

// properties returns the members of "properties" in the JSON Schema.
func (o *object[T]) properties() string {
	members := make([]string, len(o.fields))
	for i, f := range o.fields {
		members[i] = fmt.Sprintf("%q: {%s, \"description\": %s}", f.key, f.schema, plainText(f.doc))
	}
	return strings.Join(members, ", ")
}

var markdownLink = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// plainText converts a line of Markdown to a sentence without markup, as a JSON string.
func plainText(markdown string) string {
	text := strings.ReplaceAll(markdownLink.ReplaceAllString(markdown, "$1"), "`", "")
	if first, size := utf8.DecodeRuneInString(markdown); unicode.IsLetter(first) {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	return jsonOf(text + ".")
}

// jsonOf returns the JSON of a text, a number or a list of texts.
func jsonOf(v any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // unreachable for these types
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// groupOf returns the group of a key: the key itself if it is validated alone.
func (o *object[T]) groupOf(key string) string {
	if f := o.field(key); f != nil && f.group != "" {
		return f.group
	}
	return key
}

// inGroup sets the group.
func (f field[T]) inGroup(group string) field[T] {
	f.group = group
	return f
}

// withSchema adds members to the schema.
func (f field[T]) withSchema(schema string) field[T] {
	f.schema += ", " + schema
	return f
}

// withDefault sets the documented default.
func (f field[T]) withDefault(unset string) field[T] {
	f.unset = unset
	return f
}

// The constructors below create fields of common types. Their parameter of returns a pointer to the value.

// valueField completes a field of type V. A zero value is the same as no key.
func valueField[T any, V comparable](
	f field[T], of func(*T) *V, read func(d *decoder, n *node, key string) V, write func(e *encoder, what string, v V) *node,
) field[T] {
	f.read = func(d *decoder, n *node, key string, into *T) { *of(into) = read(d, n, key) }
	f.write = func(e *encoder, what string, from *T) *node {
		var unset V
		if *of(from) == unset {
			return nil
		}
		return write(e, what, *of(from))
	}
	return f
}

// textField returns a field for a text.
func textField[T any](key, doc string, of func(*T) *string) field[T] {
	read := func(d *decoder, n *node, key string) string { s, _ := d.Text(n, key); return s }
	return valueField(field[T]{key: key, doc: doc, unset: "none", schema: `"type": "string"`}, of, read, (*encoder).text)
}

// textsField returns a field for a text or a list of texts.
func textsField[T any](key, doc string, of func(*T) *[]string) field[T] {
	return field[T]{
		key: key, doc: doc, unset: "none", schema: `"$ref": "#/$defs/texts"`,
		read: func(d *decoder, n *node, key string, into *T) { *of(into) = d.Texts(n, key) },
		write: func(e *encoder, what string, from *T) *node {
			if len(*of(from)) == 0 {
				return nil
			}
			return e.list(what, *of(from))
		},
	}
}

// boolField returns a field for true or false; false is the default.
func boolField[T any](key, doc string, of func(*T) *bool) field[T] {
	f := field[T]{key: key, doc: doc, unset: "`false`", schema: `"type": "boolean", "default": false`}
	return valueField(f, of, (*decoder).Bool, func(_ *encoder, _ string, v bool) *node { return boolNode(v) })
}

// intField returns a field for an integer of at least minimum. Remedy, if not empty, ends the error about a smaller number.
// 0 is the same as no key.
func intField[T any, N int | int64](key, doc string, minimum int64, remedy string, of func(*T) *N) field[T] {
	f := field[T]{key: key, doc: doc, unset: "none", schema: fmt.Sprintf(`"type": "integer", "minimum": %d`, minimum)}
	return valueField(f, of, func(d *decoder, n *node, key string) N { return N(d.Int(n, key, minimum, remedy)) },
		func(_ *encoder, _ string, v N) *node { return intNode(int64(v)) })
}

// enumField returns a field for one of the words, which are in the order of their values. The first word is the default.
func enumField[T any, W ~uint8](key, doc string, words []string, of func(*T) *W) field[T] {
	schema := fmt.Sprintf(`"enum": %s, "default": %q`, jsonOf(words), words[0])
	f := field[T]{key: key, doc: doc, unset: "`" + words[0] + "`", schema: schema}
	return valueField(f, of, func(d *decoder, n *node, key string) W { return W(max(d.Enum(n, key, words), 0)) },
		func(e *encoder, what string, v W) *node { return e.text(what, words[v]) })
}

// durationSchema is the member of a schema for the text of a duration.
const durationSchema = `"pattern": "^([0-9]+(\\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$"`

// durationField returns a field for a duration.
func durationField[T any](key, doc string, of func(*T) *time.Duration) field[T] {
	f := field[T]{key: key, doc: doc, unset: "`0s`", schema: `"type": "string", ` + durationSchema}
	return valueField(f, of, (*decoder).Duration, func(e *encoder, what string, v time.Duration) *node { return e.text(what, v.String()) })
}

// timeField returns a field for a time, which is encoded without quotes, like a number.
func timeField[T any](key, doc string, of func(*T) *time.Time) field[T] {
	f := field[T]{key: key, doc: doc, unset: "never", schema: `"type": "string", "format": "date-time"`}
	return valueField(f, of, (*decoder).Time, func(_ *encoder, _ string, v time.Time) *node {
		return &node{Kind: yamldoc.Number, Text: v.UTC().Format(time.RFC3339Nano)}
	})
}

// optionalBoolField returns a field for true, false or unset.
func optionalBoolField[T any, W ~uint8](key, doc string, yes, no W, of func(*T) *W) field[T] {
	read := func(d *decoder, n *node, key string) W {
		if d.Bool(n, key) {
			return yes
		}
		return no
	}
	f := field[T]{key: key, doc: doc, unset: "either", schema: `"type": "boolean"`}
	return valueField(f, of, read, func(_ *encoder, _ string, v W) *node { return boolNode(v == yes) })
}

// listField returns a field for a list. Add decodes an item; kind is the name of the item's definition in the schema.
func listField[T any](key, doc, kind string, add func(*T, *decoder, *node), write func(*encoder, *T) *node) field[T] {
	return field[T]{
		key: key, doc: doc, unset: "none", schema: fmt.Sprintf(`"type": "array", "items": {"$ref": "#/$defs/%s"}`, kind),
		read: func(d *decoder, n *node, key string, into *T) {
			for _, item := range d.list(n, key) {
				add(into, d, item)
			}
		},
		write: func(e *encoder, _ string, from *T) *node { return write(e, from) },
	}
}
