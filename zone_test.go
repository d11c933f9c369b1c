package headgate_test

import (
	"testing"
	"time"
	_ "time/tzdata" // for machines without time zone data
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}
