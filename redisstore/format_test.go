package redisstore

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
)

var writeFormat = flag.Bool("write-format", false, "write the golden file of a new format; existing files are never overwritten")

// TestFormat compares the stored keys and values with testdata/<format>.golden, byte by byte. Nodes of two versions may share
// a Redis: if this test fails, rename the format, run the test once with -write-format, and document in docs/redis.md what
// happens to the old data.
func TestFormat(t *testing.T) {
	t.Parallel()
	server := testenv.Start(t, testenv.Redis)
	target := openWithClock(t, standalone(server), "format", nil)
	store, _ := target.Store.(*Store)
	got := storedBytes(t, server, store, target.SetTime)
	file := filepath.Join("testdata", format+".golden")
	want, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) && *writeFormat {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%v: a new format needs a golden file: run this test with -write-format", err)
	}
	if got != string(want) {
		t.Errorf("stored bytes of %s have changed: rename the format\ngot\n%s\nwant\n%s", format, got, want)
	}
}

// storedBytes makes charges of every kind at fixed times and returns everything that they stored.
func storedBytes(t *testing.T, server *testenv.Server, store *Store, setTime func(time.Time)) string {
	start := time.Unix(2_000_000_000, 123_456_000)
	minute := func(a headgate.Algorithm) headgate.Limit {
		return headgate.Limit{Algorithm: a, Count: 500, Window: time.Minute}
	}
	limits := []headgate.Limit{
		minute(headgate.TokenBucket), minute(headgate.LeakyBucket), minute(headgate.FixedWindow), minute(headgate.SlidingWindow),
		minute(headgate.SlidingLog),
		{Algorithm: headgate.SlidingLog, Count: 500, Window: time.Hour},
		{Algorithm: headgate.FixedWindow, Count: 500, Window: time.Minute, Align: headgate.OnClock},
		headgate.Quota(500, headgate.Month, nil),
		minute(headgate.Concurrency),
		{Algorithm: headgate.SlidingWindow, Count: 500, Window: time.Minute, Align: headgate.OnClock},
	}
	var text strings.Builder
	for i, limit := range limits {
		subject := headgate.SubjectOf("format", strconv.Itoa(i))
		c := headgate.Charge{Subject: subject, Counter: headgate.CounterOf("format", "", limit.Algorithm), Limit: limit, MaxDelay: time.Hour}
		take := func(after time.Duration, change func(*headgate.Charge)) headgate.Result {
			setTime(start.Add(after))
			made, results := c, make([]headgate.Result, 1)
			change(&made)
			if err := store.Take(t.Context(), []headgate.Charge{made}, results); err != nil || !results[0].Allowed {
				t.Fatalf("%s: %+v: %v", limit, results[0], err)
			}
			return results[0]
		}
		for n := range 200 {
			take(time.Duration(n)*time.Millisecond, func(c *headgate.Charge) { c.Cost, c.Holder, c.Seq = 1+int64(n%2), uint64(n%3), int64(n) })
		}
		take(61*time.Second, func(c *headgate.Charge) { c.Cost, c.Holder, c.Seq = 3, 0x1122334455667788, 1 })
		last := take(62*time.Second, func(c *headgate.Charge) { c.Cost = 5 })
		take(62*time.Second, func(c *headgate.Charge) { c.Cost, c.Refund = 2, last.Receipt })
		var held []headgate.Result
		for n := range 4 {
			held = append(held, take(63*time.Second, func(c *headgate.Charge) { c.Cost, c.Hold = 4, time.Minute<<(n/2) }))
		}
		if charge := (headgate.Charge{Limit: limit, Hold: time.Second}); charge.Holds() {
			take(64*time.Second, func(c *headgate.Charge) { c.Release = held[0].Receipt })
		}
		fmt.Fprintf(&text, "%s\n%s\n", limit, store.Key(subject))
		all, _ := server.Must(t, "HGETALL", store.Key(subject)).([]any)
		var lines []string
		for n := 0; n < len(all); n += 2 {
			field, _ := all[n].(string)
			value, _ := all[n+1].(string)
			lines = append(lines, fmt.Sprintf("  %s: %s\n", hex.EncodeToString([]byte(field)), hex.EncodeToString([]byte(value))))
		}
		slices.Sort(lines)
		text.WriteString(strings.Join(lines, ""))
	}
	return text.String()
}
