package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/fleet"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
)

// footprint measures the Redis memory of a subject.
func footprint(s *paired.Suite) {
	const many = 200_000
	fmt.Println()
	for _, size := range []struct {
		limits int
		target float64 // 0 if not judged
	}{{1, 0}, {3, 260}, {5, 340}} {
		server := testenv.Start(s, testenv.Redis)
		store := fleet.Open(s, "redis://"+server.Addr())
		before := server.UsedMemory(s)
		charges := make([]headgate.Charge, size.limits)
		results := make([]headgate.Result, size.limits)
		for n := range many {
			for i := range charges {
				charges[i] = headgate.Charge{
					Subject: headgate.SubjectOf("footprint", strconv.Itoa(n)),
					Counter: headgate.CounterOf("footprint", strconv.Itoa(i), headgate.TokenBucket),
					Limit:   headgate.PerHour(int64(100 * (i + 1))),
					Cost:    1,
				}
			}
			testenv.NoError(s, store.Take(context.Background(), charges, results))
		}
		bytes := float64(server.UsedMemory(s)-before) / many
		fmt.Printf("Redis memory, %d limits per subject: %.0f bytes per subject\n", size.limits, bytes)
		if size.target > 0 {
			s.ExpectMaxValue(fmt.Sprintf("bytes of Redis per subject with %d limits", size.limits), bytes, size.target)
		}
		server.Kill()
	}
}
