package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

const (
	clockReadings = 5
	// maxClockDifference is more than clocks differ that are synchronised.
	maxClockDifference = time.Second

	latencyCalls = 100
	// latencyTime bounds the measurement of one server.
	latencyTime = 3 * time.Second
)

// clock compares the clock of a server with that of this host. Decisions go by the server's.
func (c *redisCheck) clock(ctx context.Context, address string, client rueidis.Client) {
	var difference, shortest time.Duration
	for i := range clockReadings {
		before := time.Now()
		parts, err := client.Do(ctx, client.B().Time().Build()).AsStrSlice()
		elapsed := time.Since(before)
		if err != nil || len(parts) != 2 {
			return // permissions reports it
		}
		seconds, _ := strconv.ParseInt(parts[0], 10, 64)
		micros, _ := strconv.ParseInt(parts[1], 10, 64)
		if i == 0 || elapsed < shortest {
			shortest = elapsed
			difference = time.Unix(seconds, micros*1000).Sub(before.Add(elapsed / 2))
		}
	}
	detail := fmt.Sprintf("%s %s this host's", difference.Abs().Round(time.Millisecond), map[bool]string{true: "ahead of", false: "behind"}[difference >= 0])
	if difference.Abs()-shortest/2 > maxClockDifference {
		c.add(address, "clock", Warning, detail+": windows by calendar and expiry times are off by that much on one of them", "synchronise both clocks: timedatectl set-ntp true")
		return
	}
	c.add(address, "clock", OK, detail, "")
}

// latency measures calls like those of decisions, one after the other.
func (c *redisCheck) latency(ctx context.Context, address string, client rueidis.Client) {
	var elapsed []time.Duration
	for end := time.Now().Add(latencyTime); len(elapsed) < latencyCalls && time.Now().Before(end); {
		before := time.Now()
		if err := client.Do(ctx, client.B().Eval().Script("return 1").Numkeys(0).Build()).Error(); err != nil {
			return // permissions reports it
		}
		elapsed = append(elapsed, time.Since(before))
	}
	slices.Sort(elapsed)
	median, p99 := elapsed[len(elapsed)/2], elapsed[(len(elapsed)*99-1)/100]
	detail := fmt.Sprintf("median %s, p99 %s in %d calls; redis.deadline is %s", round(median), round(p99), len(elapsed), c.Deadline)
	slow := "move nodes and Redis closer together, look for slow commands (" + c.cli(address, "SLOWLOG", "GET", "10") + "), or raise redis.deadline"
	switch {
	case median > c.Deadline:
		c.add(address, "latency", Problem, detail+": most decisions are made without Redis", slow)
	case p99 > c.Deadline:
		c.add(address, "latency", Warning, detail+": some decisions are made without Redis", slow)
	default:
		c.add(address, "latency", OK, detail, "")
	}
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
