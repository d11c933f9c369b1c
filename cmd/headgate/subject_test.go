package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestReadSubject(t *testing.T) {
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
		got, _, err := readSubject(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v %v", text, got, err)
		}
		if again, _, err := readSubject(subjectText(got)); err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("%s: %v %v", subjectText(got), again, err)
		}
	}
	for text, want := range map[string]string{
		"":                  `"" is not a subject: write what the rule counts by and its value, like tenant=acme or tenant=acme,user=ann`,
		"acme":              `"acme" is not a subject`,
		"tenant=acme,ann":   `"tenant=acme,ann" is not a subject`,
		"/x":                `"/x" is not a subject`,
		"tenant=":           "in the subject tenant= has no value",
		"tenat=acme":        "in the subject ",
		"tenant=a,tenant=b": "in the subject there are two of tenant",
		"ip=nowhere":        "in the subject ip=nowhere is not valid",
	} {
		if _, _, err := readSubject(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestReadExpiry(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 15, 12, 0, 0, 5, time.UTC)
	for text, want := range map[string]string{
		"2026-12-01":                "2026-12-01T00:00:00Z",
		"2026-11-15T14:00:00+01:00": "2026-11-15T13:00:00Z",
		"72h":                       "2026-11-18T12:00:00Z",
		"14d":                       "2026-11-29T12:00:00Z",
	} {
		if got, err := readExpiry(text, now); err != nil || instant(*got) != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	if got, err := readExpiry("", now); got != nil || err != nil {
		t.Error(got, err)
	}
	for text, want := range map[string]string{
		"friday":     `"friday" is no end: write a day like 2026-12-01`,
		"2026-11-15": "2026-11-15T00:00:00Z is over already",
		"-1h":        "2026-11-15T11:00:00Z is over already",
		"0d":         "2026-11-15T12:00:00Z is over already",
	} {
		if _, err := readExpiry(text, now); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
