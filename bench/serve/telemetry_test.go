package main

import "testing"

// TestBuildUnobserved checks the line of the server that the build without telemetry replaces.
func TestBuildUnobserved(t *testing.T) { buildUnobserved(t) }
