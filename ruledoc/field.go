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

// field is a key of a mapping in rule documents: the one description of it that the decoder, the encoder, the schema, the
// documentation and, by what is encoded, rulediff go by. A new key is a field of package headgate and a line in one of the tables of
// fields (ruleKeys, limitKeys, …), its effect, and a line in testdata/good/every_key.yaml. The rest is written with
// go test ./ruledoc -update.
type field[T any] struct {
	key string
	// doc says in Markdown what the key is, as docs/rules.md has it; the schema has the same as plain text.
	doc string
	// unset says in Markdown what holds without the key.
	unset string
	// judgedWith is another key that is judged together with this one: what is wrong with one of them may only follow from what is
	// wrong with the other.
	judgedWith string
	// schema is the members of the value's JSON Schema but for its description.
	schema string
	read   func(d *decoder, n *node, key string, into *T)
	// write returns the value, or nil if it goes without saying. What names it in errors.
	write func(e *encoder, what string, from *T) *node
}

// object is a kind of mapping in rule documents.
type object[T any] struct {
	fields []field[T]
	table  []yamldoc.Field[*decoder, T]
}

func objectOf[T any](fields ...field[T]) *object[T] {
	o := &object[T]{fields: fields}
	for _, f := range fields {
		o.table = append(o.table, yamldoc.Field[*decoder, T]{Key: f.key, Read: f.read})
	}
	return o
}

// field returns the field of a key, or nil.
func (o *object[T]) field(key string) *field[T] {
	if i := slices.IndexFunc(o.fields, func(f field[T]) bool { return f.key == key }); i >= 0 {
		return &o.fields[i]
	}
	return nil
}

// keys returns the names of the fields.
func (o *object[T]) keys() []string { return yamldoc.Keys(o.table) }

// read reads a mapping, which is what in errors.
func (o *object[T]) read(d *decoder, n *node, what string, into *T) {
	yamldoc.Fields(d, n, what, o.table, into)
}

// write returns the mapping of all that does not go without saying. Where names it in errors; if it is "", each key names itself.
func (o *object[T]) write(e *encoder, where string, from *T) *node {
	n := mapping()
	for i := range o.fields {
		what := where
		if where == "" {
			what = o.fields[i].key
		}
		put(n, o.fields[i].key, o.fields[i].write(e, what, from))
	}
	return n
}

// properties returns the keys as the members of "properties" in a JSON Schema.
func (o *object[T]) properties() string {
	members := make([]string, len(o.fields))
	for i, f := range o.fields {
		members[i] = fmt.Sprintf("%q: {%s, \"description\": %s}", f.key, f.schema, plainText(f.doc))
	}
	return strings.Join(members, ", ")
}

var markdownLink = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// plainText returns a line of Markdown as a sentence without marks, as a JSON string.
func plainText(markdown string) string {
	text := strings.ReplaceAll(markdownLink.ReplaceAllString(markdown, "$1"), "`", "")
	if first, size := utf8.DecodeRuneInString(markdown); unicode.IsLetter(first) {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	return jsonOf(text + ".")
}

// jsonOf returns a value of the description in JSON.
func jsonOf(v any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // it is a text, a number or a list of texts
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// judgedWith returns the key that stands for all that are judged together with this one.
func (o *object[T]) judgedWith(key string) string {
	if f := o.field(key); f != nil && f.judgedWith != "" {
		return f.judgedWith
	}
	return key
}

// judged says which key this one is judged together with.
func (f field[T]) judged(with string) field[T] {
	f.judgedWith = with
	return f
}

// with adds members to the schema.
func (f field[T]) with(schema string) field[T] {
	f.schema += ", " + schema
	return f
}

// or says what holds without the key.
func (f field[T]) or(unset string) field[T] {
	f.unset = unset
	return f
}

// The constructors of fields with a value of a usual kind take where the value is.

// valueField completes a field whose value is a V; without the key it is the zero one.
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

func textField[T any](key, doc string, of func(*T) *string) field[T] {
	read := func(d *decoder, n *node, key string) string { s, _ := d.Text(n, key); return s }
	return valueField(field[T]{key: key, doc: doc, unset: "none", schema: `"type": "string"`}, of, read, (*encoder).text)
}

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

func yesNoField[T any](key, doc string, of func(*T) *bool) field[T] {
	f := field[T]{key: key, doc: doc, unset: "`false`", schema: `"type": "boolean", "default": false`}
	return valueField(f, of, (*decoder).Bool, func(_ *encoder, _ string, v bool) *node { return yesOrNo(v) })
}

// wholeField is a whole number of at least least; why explains that to whoever writes less. 0 is the same as no key.
func wholeField[T any, N int | int64](key, doc string, least int64, why string, of func(*T) *N) field[T] {
	f := field[T]{key: key, doc: doc, unset: "none", schema: fmt.Sprintf(`"type": "integer", "minimum": %d`, least)}
	return valueField(f, of, func(d *decoder, n *node, key string) N { return N(d.Int(n, key, least, why)) },
		func(_ *encoder, _ string, v N) *node { return number(int64(v)) })
}

// wordField is one of the words, which are in the order of their values; the first one is the default.
func wordField[T any, W ~uint8](key, doc string, words []string, of func(*T) *W) field[T] {
	schema := fmt.Sprintf(`"enum": %s, "default": %q`, jsonOf(words), words[0])
	f := field[T]{key: key, doc: doc, unset: "`" + words[0] + "`", schema: schema}
	return valueField(f, of, func(d *decoder, n *node, key string) W { return W(max(d.Enum(n, key, words), 0)) },
		func(e *encoder, what string, v W) *node { return e.text(what, words[v]) })
}

func durationField[T any](key, doc string, of func(*T) *time.Duration) field[T] {
	f := field[T]{key: key, doc: doc, unset: "`0s`", schema: `"type": "string", "pattern": "^([0-9]+(\\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$"`}
	return valueField(f, of, (*decoder).Duration, func(e *encoder, what string, v time.Duration) *node { return e.text(what, v.String()) })
}

// instantField is a time, which is written as it is, like a number.
func instantField[T any](key, doc string, of func(*T) *time.Time) field[T] {
	f := field[T]{key: key, doc: doc, unset: "never", schema: `"type": "string", "format": "date-time"`}
	return valueField(f, of, (*decoder).Time, func(_ *encoder, _ string, v time.Time) *node {
		return &node{Kind: yamldoc.Number, Text: v.UTC().Format(time.RFC3339Nano)}
	})
}

// eitherField is true or false where no key is neither.
func eitherField[T any, W ~uint8](key, doc string, yes, no W, of func(*T) *W) field[T] {
	read := func(d *decoder, n *node, key string) W {
		if d.Bool(n, key) {
			return yes
		}
		return no
	}
	f := field[T]{key: key, doc: doc, unset: "either", schema: `"type": "boolean"`}
	return valueField(f, of, read, func(_ *encoder, _ string, v W) *node { return yesOrNo(v == yes) })
}

// listField is a list whose items are read and written one by one; kind is the definition of one of them in the schema.
func listField[T any](key, doc, kind string, add func(*T, *decoder, *node), write func(*encoder, *T) *node) field[T] {
	return field[T]{
		key: key, doc: doc, unset: "none", schema: fmt.Sprintf(`"type": "array", "items": {"$ref": "#/$defs/%s"}`, kind),
		read: func(d *decoder, n *node, key string, into *T) {
			for _, item := range d.list(n, key, key) {
				add(into, d, item)
			}
		},
		write: func(e *encoder, _ string, from *T) *node { return write(e, from) },
	}
}
