// Package telemetry counts what the server does and shows it to Prometheus.
//
// It knows the names of the metrics, which dashboards hold on to, and keeps the number of series bounded whatever rules
// and callers say. It decides nothing and knows nobody's address or key.
package telemetry
