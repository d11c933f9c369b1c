package main

import (
	"slices"
	"testing"
)

func TestExcuseStalls(t *testing.T) {
	for _, c := range []struct {
		row             row
		failed, excused []string
	}{
		{row{failed: []string{"errors", "recovery", "circuit"}}, nil, []string{"errors", "recovery", "circuit"}},
		{row{failed: []string{"p99", "5xx", "unaccounted"}}, []string{"5xx", "unaccounted"}, []string{"p99"}},
		{row{whole: span{1, 1.5, 1.5}, failed: []string{"admits too much"}}, nil, []string{"admits too much"}},
		{row{whole: span{1, 2.5, 2.5}, failed: []string{"admits too much"}}, []string{"admits too much"}, nil},
		{
			row{buckets: []bucket{{admitted: 21, ideal: 10}}, failed: []string{"token bucket admits too much"}},
			[]string{"token bucket admits too much"},
			nil,
		},
	} {
		r := c.row
		r.excuseStalls()
		if !slices.Equal(r.failed, c.failed) || !slices.Equal(r.excused, c.excused) {
			t.Errorf("%q: failed %q, excused %q, want %q and %q", c.row.failed, r.failed, r.excused, c.failed, c.excused)
		}
	}
}
