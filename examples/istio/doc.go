// Package istio holds the example for Istio to Istio's own types and runs its patches in a real Envoy. It knows how Istio applies an
// EnvoyFilter to a gateway, as far as the example uses it. It contains only tests.
package istio
