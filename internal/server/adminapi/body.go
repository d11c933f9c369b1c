package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"
)

const (
	maxBody = 64 << 10
	// maxBulk is for many rules or overrides at once.
	maxBulk = 16 << 20
	// maxObjects is far above what a body of useful objects has. Decoded, an empty one takes a hundred times its size.
	maxObjects = 200_000
)

func (c *call) readBody(most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, newProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", large.Limit))
	case err != nil:
		return nil, badRequest("the body cannot be read: %s", err)
	}
	if n := bytes.Count(body, []byte("{")) + bytes.Count(body, []byte("[")); n > maxObjects {
		return nil, newProblem(http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the body has %d objects and lists, of at most %d: send less at once", n, maxObjects))
	}
	return body, nil
}

// parse denies what package json would make something else of: the answer would be to another question.
func parse[T any](body []byte) (none T, err error) {
	var value *T
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&value)
	_, more := decoder.Token()
	switch {
	case !utf8.Valid(body):
		err = errors.New("it is not UTF-8")
	case err != nil:
	case !errors.Is(more, io.EOF):
		err = errors.New("there is something after it")
	case value == nil:
		err = errors.New("it is null")
	}
	if err != nil {
		return none, err
	}
	return *value, nil
}

// read is the body of a request; example shows what to send.
func read[T any](c *call, example string) (none T, _ error) {
	body, err := c.readBody(maxBody)
	if err != nil {
		return none, err
	}
	return parseLike[T](body, example)
}

func parseLike[T any](body []byte, example string) (T, error) {
	value, err := parse[T](body)
	if err != nil {
		err = badRequest("the body cannot be used: %s; send %s", err, example)
	}
	return value, err
}
