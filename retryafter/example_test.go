package retryafter_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/headgate/headgate/retryafter"
)

func Example() {
	calls := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls < 3 {
			w.Header().Set("Retry-After", "0")
			http.Error(w, "slow down", http.StatusTooManyRequests)
		}
	}))
	defer api.Close()

	client := &http.Client{Transport: retryafter.New(http.DefaultTransport, retryafter.Options{
		Backoff: time.Millisecond, // for a fast example; the default suits an API
	})}
	defer client.CloseIdleConnections()
	resp, err := client.Post(api.URL+"/orders", "text/plain", strings.NewReader("one tea"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "after", calls, "calls")
	// Output: 200 after 3 calls
}

// A nightly job with many workers can wait long.
func ExampleNew_patient() {
	transport := retryafter.New(http.DefaultTransport, retryafter.Options{
		MaxWait:     15 * time.Minute,
		MaxAttempts: 20,
		BudgetBurst: 500,
		OnRetry: func(r retryafter.Retry) {
			slog.Info("waiting", "host", r.Request.URL.Host, "status", r.Status, "header", r.Header, "wait", r.Wait)
		},
	})
	client := &http.Client{Transport: transport}
	client.CloseIdleConnections()
	// Output:
}
