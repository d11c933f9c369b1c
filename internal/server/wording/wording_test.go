package wording_test

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/wording"
)

func TestWording(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		wording.Number(0):         "0",
		wording.Number(999):       "999",
		wording.Number(1_000):     "1,000",
		wording.Number(1_234_567): "1,234,567",

		wording.Count(1, "rule"):      "1 rule",
		wording.Count(0, "rule"):      "0 rules",
		wording.Count(10_000, "rule"): "10,000 rules",

		wording.List(nil):                     "",
		wording.List([]string{"a"}):           "a",
		wording.List([]string{"a", "b"}):      "a and b",
		wording.List([]string{"a", "b", "c"}): "a, b and c",

		wording.Attributes(headgate.Attributes{"user": "ann", "ip": ""}):                    "ip=(none) user=ann",
		wording.Attributes(headgate.Attributes{"api_key": "in the clear"}):                  "api_key=" + headgate.HashKey("in the clear"),
		wording.Attributes(headgate.Attributes{"api_key": "sha256:8BgO_c44N2VRnyi8HNtnmG"}): "api_key=sha256:8BgO_c44N2VRnyi8HNtnmG",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
