// Package telemetry counts decisions, store calls and rule changes, and serves the counts to Prometheus.
//
// It defines the names of the metrics, on which dashboards depend, and bounds the number of series for any rules and callers.
// It makes no decisions and holds no client addresses or keys.
package telemetry
