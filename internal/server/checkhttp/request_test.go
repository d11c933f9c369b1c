package checkhttp

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCountItems(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][2]int{
		``:                                 {},
		`{}`:                               {},
		` { } `:                            {},
		`{"a": 1}`:                         {1, 0},
		`{"a": {}, "b": []}`:               {2, 0},
		`{"a": {"x": "1", "y": "2"}}`:      {1, 2},
		`{"a": [1], "b": [{}, {"c": 1}]}`:  {2, 3},
		`{"a": "x,y,\"{[,", "b,c": [","]}`: {2, 1},
		`{"a": {"b": {"c": 1, "d": 2}}}`:   {1, 1},
		`]]]]{"a": 1, "b": 2`:              {},
		`{"a\\": {"x": "\\", "y": ","}}`:   {1, 2},
	} {
		if members, items := countItems([]byte(body)); members != want[0] || items != want[1] {
			t.Errorf("%s: %d and %d, want %v", body, members, items, want)
		}
	}
}

// FuzzCountItems compares the counts with those of package json.
func FuzzCountItems(f *testing.F) {
	f.Add(`{"a": {"b": "c", "d": "e"}, "f": [1, "\"", {}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &members) != nil {
			return
		}
		inner := 0
		for _, value := range members {
			var list []json.RawMessage
			var object map[string]json.RawMessage
			switch text := strings.TrimSpace(string(value)); {
			case strings.HasPrefix(text, "[") && json.Unmarshal(value, &list) == nil:
				inner += len(list)
			case strings.HasPrefix(text, "{") && json.Unmarshal(value, &object) == nil:
				inner += len(object)
			}
		}
		// Duplicate members count twice.
		if n, items := countItems([]byte(body)); n < len(members) || items < inner {
			t.Errorf("%q: %d and %d, want at least %d and %d", body, n, items, len(members), inner)
		}
	})
}

// TestTooManyItems checks that bodies over the bounds are rejected, whether the items are in one member or in several.
func TestTooManyItems(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body   string
		within bound
		want   string
	}{
		"attributes": {`{"attributes": {` + strings.Repeat(`"a": "b", `, 128) + `"c": "d"}}`, request, "129 attributes: send at most 128"},
		"twice": {
			`{` + strings.Repeat(`"attributes": {`+strings.Repeat(`"a": "b", `, 64)+`"c": "d"}, `, 2) + `"cost": 1}`,
			request, "130 attributes: send at most 128",
		},
		"requests": {`{"requests": [` + strings.Repeat(`{}, `, 1000) + `{}]}`, batch, "1001 requests: send at most 1000"},
		"members":  {`{` + strings.Repeat(`"cost": 1, `, 32) + `"cost": 1}`, request, "33 members: send each member once"},
	} {
		err := decode([]byte(test.body), test.within)
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}
