package main

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/memstore"
	"github.com/headgate/headgate/streamlimit"
)

// read returns the lines that begin with a prefix, at most count, and how long that took.
func read(t *testing.T, o streamlimit.Options, rule headgate.Rule, count int, prefix string) (lines []string, elapsed time.Duration) {
	t.Helper()
	limiter, err := headgate.New(memstore.New(memstore.Options{}), rule)
	testenv.NoError(t, err)
	limits, err := streamlimit.New(limiter, o)
	testenv.NoError(t, err)
	server := httptest.NewServer(events(limits, func(context.Context, int) string { return "price" }))
	t.Cleanup(server.Close)
	start := time.Now()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/events?user=ada", nil)
	testenv.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	testenv.NoError(t, err)
	defer response.Body.Close()
	for scanner := bufio.NewScanner(response.Body); len(lines) < count && scanner.Scan(); {
		if strings.HasPrefix(scanner.Text(), prefix) {
			lines = append(lines, scanner.Text())
		}
	}
	return lines, time.Since(start)
}

// TestSlowDown tests that a source without a limit is slowed down to the rate of the connection. A machine that stalls slows it down
// further.
func TestSlowDown(t *testing.T) {
	testenv.Long(t)
	t.Parallel()
	const rate, count = 100, 300
	lines, elapsed := read(t, streamlimit.Options{
		Connection: headgate.Limit{Count: rate, Window: time.Second, Burst: 50},
	}, eventsOfUsers, count, "data: price")
	if want := 50 + rate*elapsed.Seconds(); len(lines) != count || count > 1.02*want || count < want/4 {
		t.Errorf("%d events, %.1f allowed in that time", len(lines), want)
	}
}

// TestEnd tests that a stream over the limit of its user ends with the time to reconnect.
func TestEnd(t *testing.T) {
	t.Parallel()
	rule := eventsOfUsers
	rule.Limit = headgate.PerHour(3)
	lines, _ := read(t, streamlimit.Options{}, rule, 100, "")
	got := strings.Join(lines, "|")
	if !strings.Contains(got, "id: 2|data: price||retry: 1") || strings.Contains(got, "id: 3") ||
		!strings.Contains(got, "|event: limited|data: too many messages: events allows 3/hour; retry in ") {
		t.Error(got)
	}
}
