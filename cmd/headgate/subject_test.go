package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestParseSubject(t *testing.T) {
	t.Parallel()
	hash := headgate.HashKey(clearKey)
	for text, want := range map[string]headgate.Attributes{
		"tenant=acme":                {"tenant": "acme"},
		"tenant=acme, user=ann":      {"tenant": "acme", "user": "ann"},
		`user=a\,b,tenant=x=y`:       {"user": "a,b", "tenant": "x=y"},
		`user=DOMAIN\ann,tenant=a\\`: {"user": `DOMAIN\ann`, "tenant": `a\`},
		"api_key=" + clearKey:        {"api_key": hash},
		"api_key=" + hash:            {"api_key": hash},
		"tenant=a,ip=2001:db8::1":    {"tenant": "a", "ip": "2001:db8::/64"},
		"user=ann,path=/x//y":        {"user": "ann", "path": "/x/y"},
		"claim.sub=z,header.x-org=o": {"claim.sub": "z", "header.x-org": "o"},
	} {
		got, _, err := parseSubject(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v %v", text, got, err)
		}
		if again, _, err := parseSubject(subjectText(got)); err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("%s: %v %v", subjectText(got), again, err)
		}
	}
	for text, want := range map[string]string{
		"":                  `invalid subject "": write the attributes that the rule counts by, such as tenant=acme or tenant=acme,user=ann`,
		"acme":              `invalid subject "acme"`,
		"tenant=acme,ann":   `invalid subject "tenant=acme,ann"`,
		"/x":                `invalid subject "/x"`,
		"tenant=":           "subject: tenant= has no value",
		"tenat=acme":        "subject: ",
		"tenant=a,tenant=b": "subject: tenant given twice",
		"ip=nowhere":        "subject: ip=nowhere is not valid",
	} {
		if _, _, err := parseSubject(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestParseExpiry(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 15, 13, 0, 0, 5, berlin)
	for text, want := range map[string]string{
		"2026-12-01":                "2026-11-30T23:00:00Z",
		"2027-01-01 09:00":          "2027-01-01T08:00:00Z",
		"2027-07-01T09:00:30":       "2027-07-01T07:00:30Z",
		"2027-01-01T09:00:00Z":      "2027-01-01T09:00:00Z",
		"+3d":                       "2026-11-18T12:00:00Z",
		"+90m":                      "2026-11-15T13:30:00Z",
		"2026-11-15T14:00:00+01:00": "2026-11-15T13:00:00Z",
		"72h":                       "2026-11-18T12:00:00Z",
		"14d":                       "2026-11-29T12:00:00Z",
	} {
		if got, err := parseExpiry(text, now); err != nil || formatTime(*got) != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	if got, err := parseExpiry("", now); got != nil || err != nil {
		t.Error(got, err)
	}
	at := time.Date(2027, 1, 1, 8, 0, 0, 0, time.UTC)
	if got := formatLocalExpiry(&at, berlin); got != "2027-01-01T08:00:00Z (2027-01-01 09:00:00 CET)" {
		t.Error(got)
	}
	if got := formatLocalExpiry(&at, time.UTC); got != "2027-01-01T08:00:00Z" || formatLocalExpiry(nil, berlin) != "never" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		"friday":     `invalid expiry "friday": write +3d, +72h, 2027-01-01`,
		"2026-11-15": "2026-11-14T23:00:00Z is in the past",
		"-1h":        "2026-11-15T11:00:00Z is in the past",
		"0d":         "2026-11-15T12:00:00Z is in the past",
	} {
		if _, err := parseExpiry(text, now); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestEmptyExpiry checks that an unset variable of a script is not taken for "never".
func TestEmptyExpiry(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"override set r user=ann 5/s", "exempt add r --user ann", "token create ann"} {
		o := start(t, append(strings.Fields(command), "--server", "http://127.0.0.1:1", "--expires", "")...)
		if o.code != 2 || !strings.Contains(o.errors, "write a time, or omit it") {
			t.Errorf("%s: %+v", command, o)
		}
	}
}
