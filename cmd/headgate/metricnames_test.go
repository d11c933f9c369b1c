package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// TestMetricNames holds every metric of a running server to the conventions of Prometheus. A linter of the source cannot: names and kinds meet in
// helper functions.
func TestMetricNames(t *testing.T) {
	t.Parallel()
	_, file := configure(t, "", fivePerHour)
	r := serve(t, "--dev", "--config", file)
	response, err := http.Get("http://" + r.addressOf("http") + "/v1/authorize") // so that there are decisions
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	response, err = http.Get("http://" + r.addressOf("ops") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	problems, err := promlint.New(response.Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "headgate_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
