package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/paired"
	"github.com/headgate/headgate/internal/testenv"
	"github.com/headgate/headgate/redisstore"
)

// footprint is how many bytes of Redis a subject takes.
func footprint(scope *paired.Scope, aims *paired.Aims, _ int, _ time.Duration) (func(), error) {
	const many = 200_000
	fmt.Println()
	bytes := map[int]float64{}
	for _, limits := range []int{1, 3, 5} {
		server := testenv.Start(scope, testenv.Redis)
		store, err := redisstore.Open("redis://" + server.Addr())
		if err != nil {
			return nil, err
		}
		before := server.UsedMemory(scope)
		charges := make([]headgate.Charge, limits)
		results := make([]headgate.Result, limits)
		for n := range many {
			for i := range charges {
				charges[i] = headgate.Charge{
					Subject: headgate.SubjectOf("footprint", strconv.Itoa(n)),
					Counter: headgate.CounterOf("footprint", strconv.Itoa(i), headgate.TokenBucket),
					Limit:   headgate.PerHour(int64(100 * (i + 1))),
					Cost:    1,
				}
			}
			if err := store.Take(context.Background(), charges, results); err != nil {
				return nil, err
			}
		}
		bytes[limits] = float64(server.UsedMemory(scope)-before) / many
		fmt.Printf("Redis memory, %d limits per subject: %.0f bytes per subject\n", limits, bytes[limits])
		store.Close()
		server.Kill()
	}
	return func() {
		aims.AtMost("bytes of Redis per subject with 3 limits", paired.Of([]float64{bytes[3]}), 260)
		aims.AtMost("bytes of Redis per subject with 5 limits", paired.Of([]float64{bytes[5]}), 340)
	}, nil
}
