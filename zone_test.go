package headgate_test

import (
	"testing"
	"time"
	_ "time/tzdata" // the tests find their time zones on every machine
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}
