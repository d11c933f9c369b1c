// Package promapi queries a running Prometheus, and reads the dashboard whose queries it has to answer. It starts no server.
package promapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/headgate/headgate/bench/internal/fleet"
)

// Server is a running Prometheus, by host:port.
type Server string

// Get queries the HTTP API and decodes the data of the response.
func (s Server) Get(ctx context.Context, path string, data any) error {
	text, status, err := fleet.Fetch(ctx, http.DefaultClient, http.MethodGet, "http://"+string(s)+path, "")
	if err != nil {
		return err
	}
	response := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.Unmarshal(text, &response); err != nil {
		return fmt.Errorf("prometheus: %d: %w", status, err)
	}
	if response.Status != "success" {
		return fmt.Errorf("prometheus: %s", response.Error)
	}
	return nil
}

// Sample is one series of a query result.
type Sample struct {
	Metric map[string]string
	Value  [2]any // time, and value as text
}

// Number returns the value as text.
func (s Sample) Number() string { return fmt.Sprint(s.Value[1]) }

// Query evaluates an expression.
func (s Server) Query(ctx context.Context, expr string) ([]Sample, error) {
	var data struct{ Result []Sample }
	if err := s.Get(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return data.Result, nil
}

// Empty returns the names of queries without data.
func (s Server) Empty(ctx context.Context, queries []Query) (names []string, err error) {
	for _, q := range queries {
		samples, err := s.Query(ctx, q.Expr)
		if err != nil {
			return nil, err
		}
		found := false
		for _, sample := range samples {
			found = found || sample.Number() != "NaN"
		}
		if !found {
			names = append(names, q.Name)
		}
	}
	return names, nil
}
