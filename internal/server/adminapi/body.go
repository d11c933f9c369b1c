package adminapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"unicode/utf8"
)

const (
	maxBody = 64 << 10
	// maxBulk limits bodies with many rules or overrides.
	maxBulk = 16 << 20
	// maxObjects limits the objects and lists of a body, far above any useful body. A decoded empty object takes a hundred times
	// its size.
	maxObjects = 200_000
)

// readBody returns the body of a request with at most limit bytes and maxObjects objects and lists.
func (c *call) readBody(limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, newProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("body: larger than %d bytes", large.Limit))
	case err != nil:
		return nil, badRequest("body: read failed: %s", err)
	}
	if n := bytes.Count(body, []byte("{")) + bytes.Count(body, []byte("[")); n > maxObjects {
		return nil, newProblem(http.StatusRequestEntityTooLarge,
			fmt.Sprintf("body: %d objects and lists, at most %d allowed: send fewer at once", n, maxObjects))
	}
	return body, nil
}

// parse decodes a body strictly. It rejects bodies that package json would accept with another meaning.
func parse[T any](body []byte) (none T, err error) {
	var value *T
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&value)
	_, more := decoder.Token()
	switch {
	case !utf8.Valid(body):
		err = errors.New("not UTF-8")
	case err != nil:
	case !errors.Is(more, io.EOF):
		err = errors.New("unexpected data after the JSON value")
	case value == nil:
		err = errors.New("null")
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		err = fmt.Errorf("%s: %s given, must be %s", cmp.Or(wrong.Field, "the whole body"), wrong.Value, jsonType(wrong.Type))
	}
	if err != nil {
		return none, err
	}
	return *value, nil
}

// jsonType returns how JSON names what a Go type is decoded from.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("an integer of %d bits", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	default:
		return "an object"
	}
}

// read returns the decoded body of a request. The error contains the example.
func read[T any](c *call, example string) (none T, _ error) {
	body, err := c.readBody(maxBody)
	if err != nil {
		return none, err
	}
	return parseLike[T](body, example)
}

// parseLike decodes a body. The error contains the example.
func parseLike[T any](body []byte, example string) (T, error) {
	value, err := parse[T](body)
	if err != nil {
		err = badRequest("invalid body: %s: send %s", err, example)
	}
	return value, err
}
