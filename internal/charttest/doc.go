// Package charttest tests the Helm chart and the plain manifests: what they render is valid for Kubernetes, the config inside is
// valid for the server, and the server runs with it. It has no code of its own.
//
// It knows the tools (Helm, kubectl-validate and others) and what the kubelet makes of a pod's volumes. "make chart" runs all of it;
// go test alone compares files.
package charttest
