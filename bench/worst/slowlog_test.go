package main

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestIsOf(t *testing.T) {
	const key = "hg1:headgate:b"
	for _, test := range []struct {
		args []string
		want bool
	}{
		{[]string{"EVALSHA", "sha", "1", "hg1:headgate:nodes", "node", "10000"}, false},
		{[]string{"EVALSHA", "sha", "2", "hg1:headgate:a", key, "charges"}, true},
		{[]string{"EVALSHA", "sha", "1", key + ":1"}, true},
		{[]string{"HSET", "x", "field", key}, false},
		{[]string{"eval", "text", "1", key, "... (3 more arguments)"}, true},
		{[]string{"EVAL"}, false},
	} {
		if got := isOf(&redis.SlowLog{Args: test.args}, map[string]bool{key: true}, len(key)); got != test.want {
			t.Errorf("isOf(%q): %v, want %v", test.args, got, test.want)
		}
	}
}
