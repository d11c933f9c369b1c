package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testenv"
)

// TestServe tests that clients get the limit of the rules that headgate init writes.
func TestServe(t *testing.T) {
	t.Parallel()
	redis, listen := testenv.Start(t, testenv.Redis), testenv.FreeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- serve(ctx, "redis://"+redis.Addr(), "../gateways/rules.yaml", listen) }()
	get := func() int {
		response, err := http.Get("http://" + listen + "/")
		if err != nil {
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	allowed, status := 0, 0
	for deadline := time.Now().Add(20 * time.Second); status != http.StatusTooManyRequests && time.Now().Before(deadline); {
		switch status = get(); status {
		case http.StatusOK:
			allowed++
		case 0:
			time.Sleep(10 * time.Millisecond) // it does not listen yet
		}
	}
	if allowed < 10 || allowed > 20 { // while Redis is late, the process decides alone
		t.Errorf("%d requests allowed by 10/minute", allowed)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
