package check_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/check"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	many := headgate.Attributes{}
	for range check.MaxAttributes {
		many[strings.Repeat("n", len(many)+1)] = strings.Repeat("v", check.MaxValue)
	}
	long := strings.Repeat("n", check.MaxName)
	for name, test := range map[string]struct {
		req  headgate.Request
		want string
	}{
		"empty":         {headgate.Request{}, ""},
		"maximum":       {headgate.Request{Attributes: many, Cost: headgate.MaxCost, Rule: long}, ""},
		"a long name":   {headgate.Request{Attributes: headgate.Attributes{long: ""}}, ""},
		"negative cost": {headgate.Request{Cost: -1}, "omitted for 1"},
		"too costly":    {headgate.Request{Cost: headgate.MaxCost + 1}, "must be 1 to 1000000000"},
		"long rule":     {headgate.Request{Rule: long + "n"}, "rule: 257 bytes"},
		"no name":       {headgate.Request{Attributes: headgate.Attributes{"": "v"}}, "name of 0 bytes: must be 1 to 256"},
		"longer name":   {headgate.Request{Attributes: headgate.Attributes{long + "n": ""}}, "name of 257 bytes"},
		"long value": {
			headgate.Request{Attributes: headgate.Attributes{"user": many["n"] + "v"}}, `attribute "user": 8193 bytes`,
		},
	} {
		err := check.Validate(test.req)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many["more"] = ""
	err := check.Validate(headgate.Request{Attributes: many})
	if err == nil || !strings.Contains(err.Error(), "attributes: more than 128") {
		t.Error(err)
	}
}
