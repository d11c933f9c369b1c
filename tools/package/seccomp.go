package main

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// systemCallSets returns systemd's sets of system calls, by name. A set may contain others.
func systemCallSets(ctx context.Context) (map[string][]string, error) {
	text, err := output(ctx, "systemd-analyze", "syscall-filter", "--no-pager")
	if err != nil {
		return nil, err
	}
	sets, current := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		switch name := strings.TrimSpace(line); {
		case name == "" || strings.HasPrefix(name, "#"):
		case !strings.HasPrefix(line, " "):
			current = name
		default:
			sets[current] = append(sets[current], name)
		}
	}
	return sets, nil
}

// systemCalls returns the calls that the values of SystemCallFilter allow.
func systemCalls(sets map[string][]string, filters []string) []string {
	allowed := map[string]bool{}
	var set func(name string, to bool)
	set = func(name string, to bool) {
		if !strings.HasPrefix(name, "@") {
			allowed[name] = to
		}
		for _, member := range sets[name] {
			set(member, to)
		}
	}
	for _, filter := range filters {
		names, denied := strings.CutPrefix(filter, "~")
		for name := range strings.FieldsSeq(names) {
			set(name, !denied)
		}
	}
	maps.DeleteFunc(allowed, func(_ string, ok bool) bool { return !ok })
	return slices.Collect(maps.Keys(allowed))
}
