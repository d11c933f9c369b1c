package main

import (
	"errors"
	"reflect"
	"testing"
)

// entry is one of SLOWLOG GET.
func entry(micros int64, args ...any) any {
	return []any{int64(7), int64(1_700_000_000), micros, args, "127.0.0.1:1", ""}
}

func TestScriptCalls(t *testing.T) {
	reply := []any{
		entry(40, "EVALSHA", "sha", "1", "hg1:headgate:nodes", "node", "10000"),
		entry(2100, "EVALSHA", "sha", "2", "hg1:headgate:a", "hg1:headgate:b", "charges"),
		entry(60, "HSET", "hg1:headgate:a", "field", "value"),
		entry(90, "eval", "text", "1", "hg1:headgate:a", "... (3 more arguments)"),
	}
	got, err := scriptCalls(reply)
	if err != nil {
		t.Fatal(err)
	}
	want := []call{
		{40, []string{"hg1:headgate:nodes", "node", "10000"}},
		{2100, []string{"hg1:headgate:a", "hg1:headgate:b", "charges"}},
		{90, []string{"hg1:headgate:a", "... (3 more arguments)"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("calls are %v, want %v", got, want)
	}
	keys := map[string]bool{"hg1:headgate:b": true}
	for i, belongs := range []bool{false, true, false} {
		if got[i].of(keys, len("hg1:headgate:b")) != belongs {
			t.Errorf("%v belongs to the request: %v, want %v", got[i], !belongs, belongs)
		}
	}
	if suffixed := (call{Keys: []string{"hg1:headgate:b:1"}}); !suffixed.of(keys, len("hg1:headgate:b")) {
		t.Error("a key with a suffix belongs to the request")
	}
}

func TestScriptCallsOfAnotherFormat(t *testing.T) {
	for _, reply := range []any{
		nil, "OK",
		[]any{"entry"},
		[]any{[]any{int64(1), int64(2)}},
		[]any{[]any{int64(1), int64(2), "3", []any{"GET"}}},
		[]any{[]any{int64(1), int64(2), int64(3), []any{}}},
	} {
		if calls, err := scriptCalls(reply); !errors.Is(err, errSlowlog) {
			t.Errorf("%v: %v, %v; want errSlowlog", reply, calls, err)
		}
	}
}
