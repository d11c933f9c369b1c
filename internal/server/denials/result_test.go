package denials

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// ann returns attributes with distinct values.
func ann() headgate.Attributes {
	return headgate.Attributes{
		"ip": "203.0.113.77", "user": "ann@example.com", "api_key": "rawkey", "service_account": "robot", "tenant": "acme",
		"tier": "gold", "method": "DELETE", "host": "acme.example.com", "path": "/people/ann", "route": "/people/{name}",
		"user_agent": "curl", "header.x-device": "phone", "cookie.session": "crumbs", "header.x-other": "unrelated",
	}
}

func counted(by string) headgate.Rule { return headgate.Rule{ID: "by-" + by, By: []string{by}} }

func TestQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false, headgate.Rule{ID: "people", By: []string{"tenant", "header.x-device", "cookie.session"}})
	w.check(t, 2, ann())
	other := headgate.Attributes{"ip": "203.0.113.78", "user": "bob", "tenant": "other"}
	w.check(t, 2, other)
	w.check(t, 2, headgate.Attributes{"ip": "2001:db8::", "tenant": "third"})
	subject := w.one(t, Query{Attributes: headgate.Attributes{"user": "bob"}}).Subject
	hashed := headgate.HashKey("rawkey")
	for _, c := range []struct {
		q     Query
		finds int
	}{
		{Query{}, 3},
		{Query{Rule: "people"}, 3},
		{Query{Rule: "peopl"}, 0},
		{Query{Subject: subject}, 1},
		{Query{Subject: "made up"}, 0},
		{Query{Subject: subject, Attributes: headgate.Attributes{"user": "ann@example.com"}}, 0},
		{Query{Attributes: headgate.Attributes{"user": "ann@example.com"}}, 1},
		{Query{Attributes: headgate.Attributes{"user": "ann@example.com", "ip": "203.0.113.77"}}, 1},
		{Query{Attributes: headgate.Attributes{"user": "ann@example.com", "ip": "203.0.113.78"}}, 0},
		{Query{Attributes: headgate.Attributes{"user": ""}}, 1},
		{Query{Attributes: headgate.Attributes{"api_key": hashed}}, 1},
		{Query{Attributes: headgate.Attributes{"api_key": "rawkey"}}, 1},
		{Query{Attributes: headgate.Attributes{"api_key": "ann@example.com"}}, 0},
		{Query{Attributes: headgate.Attributes{"header.x-device": "phone", "cookie.session": "crumbs"}}, 1},
		{Query{Attributes: headgate.Attributes{"header.x-other": "unrelated"}}, 0}, // no rule counts by it
		// The client is the API key, else the user, else the address.
		{Query{Attributes: headgate.Attributes{"client": hashed}}, 1},
		{Query{Attributes: headgate.Attributes{"client": "rawkey"}}, 1},
		{Query{Attributes: headgate.Attributes{"client": "ann@example.com"}}, 0},
		{Query{Attributes: headgate.Attributes{"client": "bob"}}, 1},
		{Query{Attributes: headgate.Attributes{"client": "203.0.113.78"}}, 0},
		{Query{Attributes: headgate.Attributes{"client": "2001:db8::"}}, 1},
		{Query{Since: time.Now().Add(time.Minute)}, 0},
		{Query{Limit: 2}, 2},
	} {
		if found := w.Result(c.q).Records; len(found) != c.finds {
			t.Errorf("%+v finds %d, want %d", c.q, len(found), c.finds)
		}
		c.q.Hide()
		if found := w.Result(c.q).Records; len(found) != c.finds {
			t.Errorf("hidden, %+v finds %d, want %d", c.q, len(found), c.finds)
		}
		if text := fmt.Sprint(c.q); strings.Contains(text, "rawkey") || strings.Contains(text, "crumbs") {
			t.Errorf("not hidden: %s", text)
		}
	}
}

func TestLongValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true, counted("user"))
	long := strings.Repeat("x", maxValue-1) + "éé"
	w.check(t, 2, headgate.Attributes{"user": long})
	if r := w.one(t, Query{Attributes: headgate.Attributes{"user": long}}); r.Attributes["user"] != strings.Repeat("x", maxValue-1) {
		t.Error(r.Attributes)
	}
}

// TestNamesDoNotLeave checks that no value that must not be shown leaves the node.
func TestNamesDoNotLeave(t *testing.T) {
	t.Parallel()
	hashed := headgate.HashKey("rawkey")
	for _, c := range []struct {
		clear bool
		q     headgate.Attributes
		shown []string
	}{
		{false, nil, []string{"gold", "DELETE", "/people/{name}"}},
		{false, headgate.Attributes{"user": "ann@example.com"}, []string{"gold", "DELETE", "/people/{name}", "ann@example.com"}},
		{false, headgate.Attributes{"path": "/people/ann"}, []string{"gold", "DELETE", "/people/{name}", "/people/ann"}},
		{false, headgate.Attributes{"client": "rawkey"}, []string{"gold", "DELETE", "/people/{name}", hashed}},
		{true, nil, []string{
			"gold", "DELETE", "/people/{name}", "/people/ann", "203.0.113.77", "ann@example.com", hashed, "robot", "acme",
			"acme.example.com", "phone", headgate.HashKey("crumbs"),
		}},
	} {
		w := newWorld(t, c.clear, headgate.Rule{ID: "r", By: []string{"header.x-device", "cookie.session"}})
		w.check(t, 2, ann())
		r := w.one(t, Query{Attributes: c.q})
		text, err := json.Marshal(w.Result(Query{Attributes: c.q}))
		if err != nil {
			t.Fatal(err)
		}
		values := []string{hashed, headgate.HashKey("crumbs")}
		for _, value := range ann() {
			values = append(values, value)
		}
		line := fmt.Sprint(w.show(w.records[0], &Query{}).logAttrs())
		for _, value := range values {
			quoted := `"` + value + `"`
			wanted := slices.Contains(c.shown, value)
			if strings.Contains(string(text), quoted) != wanted {
				t.Errorf("clear %v, query %v: attributes %v, unexpected for %s", c.clear, c.q, r.Attributes, value)
			}
			if !wanted && strings.Contains(line, value) {
				t.Errorf("the log contains %s: %s", value, line)
			}
		}
		if strings.Contains(string(text), "rawkey") || strings.Contains(string(text), "crumbs") {
			t.Error("secrets are shown:", string(text))
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	all := Merge(Query{Limit: 3}, []Result{
		{Records: []Record{{Last: at(9), Node: "a"}, {Last: at(5), Node: "a"}}, Unrecorded: 3, From: at(1)},
		{Records: []Record{{Last: at(7), Node: "b"}, {Last: at(2), Node: "b"}}, Unrecorded: 4, From: at(4)},
	})
	var order []string
	for _, r := range all.Records {
		order = append(order, fmt.Sprint(r.Node, r.Last.Unix()))
	}
	if got := strings.Join(order, " "); got != "a9 b7 a5" {
		t.Error(got)
	}
	if all.Unrecorded != 7 || !all.From.Equal(at(4)) {
		t.Errorf("%+v", all)
	}
	text, err := json.Marshal(Merge(Query{}, nil))
	if err != nil || !strings.Contains(string(text), `"records":[],"unrecorded":0,`) {
		t.Error(string(text), err)
	}
}

// TestResultAsJSON checks that a result survives JSON encoding, as between nodes.
func TestResultAsJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true, counted("user"))
	w.check(t, 3, ann())
	first, err := json.Marshal(w.Result(Query{}))
	if err != nil {
		t.Fatal(err)
	}
	var read Result
	if err := json.Unmarshal(first, &read); err != nil {
		t.Fatal(err)
	}
	merged := Merge(Query{}, []Result{read})
	merged.Header = read.Header
	if second, err := json.Marshal(merged); err != nil || !bytes.Equal(second, first) {
		t.Errorf("%s\nis not\n%s\n%v", second, first, err)
	}
}

// TestSearchable checks that attributes are searchable if a rule counts by them.
func TestSearchable(t *testing.T) {
	t.Parallel()
	rules, err := headgate.Compile(headgate.Rule{ID: "a", By: []string{"header.x"}, Limit: headgate.PerMinute(1)})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"user": true, "client": true, "header.x": true, "header.y": false, "user_agent": false} {
		if Searchable(name, rules) != want {
			t.Errorf("%s is searchable: %t", name, !want)
		}
	}
}
